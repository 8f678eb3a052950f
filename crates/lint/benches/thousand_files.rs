//! Writes 1,000 source files into a temporary folder, lints them, and says how long it took.
//!
//! `cargo bench -p promethean-lint` (target: below 2 s).
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a measurement reads the clock, prints, and stops where it is wrong"
)]

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::Instant;

use promethean_lint::{Catalogue, Request, Settings, lint};

const FILES: usize = 1_000;
const FUNCTIONS_PER_FILE: usize = 20;
const ROUNDS: usize = 5;

fn main() {
    measure("one file in ten publishes", 10);
    measure("every file publishes", 1);
}

/// Lints a project in which each `every`th file of a language publishes.
fn measure(what: &str, every: usize) {
    let folder = tempfile::tempdir().unwrap();
    let publishes = |number: usize| (number / 4).is_multiple_of(every);
    let bytes: usize =
        (0..FILES).map(|number| write_file(folder.path(), number, publishes(number))).sum();
    let publishing = (0..FILES).filter(|number| publishes(*number)).count();
    let (settings, catalogue) = (Settings::default(), Catalogue::default());
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        let request = Request {
            root: folder.path(),
            settings: &settings,
            catalogue: &catalogue,
            paths: None,
        };
        let report = lint(&request).unwrap();
        times.push(begin.elapsed());
        assert_eq!(report.files, FILES);
        assert_eq!(report.sites.len(), publishing * FUNCTIONS_PER_FILE);
        assert!(report.sites.iter().all(|site| site.topic.is_some()));
    }
    times.sort();
    let (kilobytes, sites) = (bytes / 1024, publishing * FUNCTIONS_PER_FILE);
    println!("{what}: {FILES} files, {kilobytes} KiB, {sites} topics, in {times:.2?}");
}

/// One file of each language in turn, with constants from its neighbour; returns its size.
fn write_file(root: &Path, number: usize, publishes: bool) -> usize {
    let other = if number >= 4 { number - 4 } else { number };
    let (extension, head) = match number % 4 {
        0 => (
            "ts",
            format!(
                "import {{ NAME as OTHER }} from './m{other}';\nexport const NAME = 'a.b{number}';\n"
            ),
        ),
        1 => (
            "js",
            format!(
                "import {{ NAME as OTHER }} from './m{other}.js';\nexport const NAME = 'a.b{number}';\n"
            ),
        ),
        2 => (
            "rs",
            format!(
                "use crate::m{other}::NAME as OTHER;\npub const NAME: &str = \"a.b{number}\";\n"
            ),
        ),
        _ => ("py", format!("from .m{other} import NAME as OTHER\nNAME = 'a.b{number}'\n")),
    };
    let mut text = if number < 4 { head.replace(" as OTHER", "") } else { head };
    let used = if number < 4 { "NAME" } else { "OTHER" };
    for function in 0..FUNCTIONS_PER_FILE {
        let body = match number % 4 {
            0 | 1 => format!(
                "export async function work{function}(bus, items) {{\n  \
                 const total = items.filter((item) => item.size > {function}).map(String).join();\n  \
                 if (total.length > 3) {{\n    console.log(`publish(${{total}})`, total);\n  }}\n  \
                 await bus.publish({used}, {{ total, list: [1, 2, 3] }}, {{ headers: {{ 'x-a': '1' }} }});\n}}\n"
            ),
            2 => format!(
                "pub async fn work{function}(bus: &Bus, items: &[Item]) -> Result<(), Error> {{\n    \
                 let total: usize = items.iter().filter(|item| item.size > {function}).count();\n    \
                 if total > 3 {{\n        println!(\"publish({{total}})\");\n    }}\n    \
                 bus.publish({used}, json!({{ \"total\": total }})).header(\"x-a\", \"1\").await?;\n    \
                 Ok(())\n}}\n"
            ),
            _ => format!(
                "async def work{function}(bus, items):\n    \
                 total = len([item for item in items if item.size > {function}])\n    \
                 if total > 3:\n        print(f\"publish({{total}})\")\n    \
                 await bus.publish({used}, {{\"total\": total}}, headers={{\"x-a\": \"1\"}})\n\n\n"
            ),
        };
        write!(text, "{body}").unwrap();
    }
    if !publishes {
        text = text.replace("publish", "record");
    }
    fs::write(root.join(format!("m{number}.{extension}")), &text).unwrap();
    text.len()
}

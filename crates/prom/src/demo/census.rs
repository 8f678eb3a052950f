//! The processes of this machine: from `/proc` where there is one, else from `ps`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::table::Heartbeat;

/// So many processes are watched. Those that are keep their place until they end: falling out of a
/// list of the busiest would look like dying.
const WATCHED_MAX: usize = 16;

/// One process at one moment.
#[derive(Debug, Clone, PartialEq)]
struct Sample {
    pid: u64,
    name: String,
    mem_mb: f64,
    cpu: Cpu,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Cpu {
    /// Clock ticks since the process began.
    Ticks(u64),
    Percent(f64),
}

/// Watches processes.
#[derive(Debug, Default)]
pub(super) struct Census {
    host: Option<String>,
    /// Ticks of the CPU at the last look, by process.
    watched: BTreeMap<(u64, String), u64>,
    /// Ticks of the machine at the last look.
    uptime: Option<f64>,
}

impl Census {
    /// A beat of each process that is watched and there.
    pub(super) fn take(&mut self) -> Vec<Heartbeat> {
        let host = self.host.get_or_insert_with(host_name).clone();
        let uptime = fs::read_to_string("/proc/uptime").ok().and_then(|text| first_number(&text));
        let samples = if uptime.is_some() { from_proc(Path::new("/proc")) } else { from_ps() };
        let elapsed = uptime.zip(self.uptime).map(|(now, then)| now - then);
        self.uptime = uptime;
        self.watch(samples, elapsed.unwrap_or(0.0))
            .into_iter()
            .map(|(sample, cpu_pct)| Heartbeat {
                pid: sample.pid,
                name: sample.name,
                host: host.clone(),
                cpu_pct,
                mem_mb: sample.mem_mb,
            })
            .collect()
    }

    /// Those that are watched already first, then the largest.
    fn watch(&mut self, mut samples: Vec<Sample>, elapsed_s: f64) -> Vec<(Sample, f64)> {
        let mine = u64::from(std::process::id());
        let name = |sample: &Sample| (sample.pid, sample.name.clone());
        samples.sort_by(|a, b| {
            let rank = |s: &Sample| (self.watched.contains_key(&name(s)), s.pid == mine);
            rank(b).cmp(&rank(a)).then(b.mem_mb.total_cmp(&a.mem_mb)).then(a.pid.cmp(&b.pid))
        });
        samples.truncate(WATCHED_MAX);
        let before = std::mem::take(&mut self.watched);
        let mut beats = Vec::new();
        for sample in samples {
            let cpu_pct = match sample.cpu {
                Cpu::Percent(percent) => percent,
                Cpu::Ticks(ticks) => {
                    let then = before.get(&name(&sample)).copied().unwrap_or(ticks);
                    let seconds = ticks.saturating_sub(then) as f64 / ticks_per_second();
                    if elapsed_s > 0.0 { 100.0 * seconds / elapsed_s } else { 0.0 }
                }
            };
            let ticks = if let Cpu::Ticks(ticks) = sample.cpu { ticks } else { 0 };
            self.watched.insert(name(&sample), ticks);
            beats.push((sample, (cpu_pct * 10.0).round() / 10.0));
        }
        beats
    }
}

fn ticks_per_second() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn first_number(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok()
}

fn from_proc(proc: &Path) -> Vec<Sample> {
    let Ok(entries) = fs::read_dir(proc) else {
        return Vec::new();
    };
    let stat = |entry: fs::DirEntry| {
        let pid: u64 = entry.file_name().to_str()?.parse().ok()?;
        // A process may end between the list and the look.
        sample(pid, &fs::read_to_string(entry.path().join("stat")).ok()?)
    };
    entries.filter_map(Result::ok).filter_map(stat).collect()
}

/// Reads `/proc/PID/stat`. The name is in parentheses and may hold anything, parentheses too.
/// Threads of the kernel have no memory, and are left out.
fn sample(pid: u64, stat: &str) -> Option<Sample> {
    let (head, rest) = stat.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok());
    // Counted from the state, which is the first after the name.
    let (user, system, pages) = (number(11)?, number(12)?, number(21)?);
    let is_zombie = fields.first() == Some(&"Z");
    let bytes = pages * rustix::param::page_size() as u64;
    (pages > 0 && !is_zombie).then(|| Sample {
        pid,
        name: name.to_owned(),
        mem_mb: megabytes(bytes),
        cpu: Cpu::Ticks(user + system),
    })
}

fn megabytes(bytes: u64) -> f64 {
    (bytes as f64 / 1_048_576.0 * 10.0).round() / 10.0
}

fn from_ps() -> Vec<Sample> {
    let listed = Command::new("ps").args(["-axo", "pid=,pcpu=,rss=,comm="]).output();
    let text = listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.unwrap_or_default().lines().filter_map(ps_line).collect()
}

fn ps_line(line: &str) -> Option<Sample> {
    let mut fields = line.split_whitespace();
    let pid = fields.next()?.parse().ok()?;
    let percent = fields.next()?.replace(',', ".").parse().ok()?;
    let kilobytes: u64 = fields.next()?.parse().ok()?;
    let command = fields.collect::<Vec<_>>().join(" ");
    let name = command.rsplit('/').next().unwrap_or(&command).to_owned();
    let mem_mb = megabytes(kilobytes * 1024);
    (kilobytes > 0).then_some(Sample { pid, name, mem_mb, cpu: Cpu::Percent(percent) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u64, mem_mb: f64, ticks: u64) -> Sample {
        Sample { pid, name: format!("p{pid}"), mem_mb, cpu: Cpu::Ticks(ticks) }
    }

    #[test]
    fn names_may_hold_anything() {
        let stat = "42 (a) b (c:d)) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22";
        let found = sample(42, stat).unwrap();
        assert_eq!(found.name, "a) b (c:d)");
        assert_eq!(found.cpu, Cpu::Ticks(11 + 12));
        assert!(sample(42, &stat.replace(" S ", " Z ")).is_none(), "it has ended");
        assert!(sample(42, "42 (cut").is_none());
    }

    #[test]
    fn those_that_are_watched_stay_while_they_live() {
        let mut census = Census::default();
        let many = |from: u64| (from..from + 40).map(|pid| process(pid, pid as f64, 0)).collect();
        let first: Vec<u64> = census.watch(many(1_000_000), 0.0).iter().map(|b| b.0.pid).collect();
        assert_eq!(first.len(), WATCHED_MAX);
        assert!(first.contains(&1_000_039), "the largest");
        let mut samples: Vec<Sample> = many(1_000_000);
        samples.extend(many(2_000_000));
        samples.retain(|sample| sample.pid != 1_000_039);
        let then: Vec<u64> = census.watch(samples, 1.0).iter().map(|b| b.0.pid).collect();
        let kept = first.iter().filter(|pid| then.contains(pid)).count();
        assert_eq!(kept, WATCHED_MAX - 1, "one has ended");
        assert!(then.contains(&2_000_039), "and a new one has its place");
    }

    #[test]
    fn cpu_is_what_was_used_since_the_last_look() {
        let mut census = Census::default();
        let at = |census: &mut Census, ticks| census.watch(vec![process(1, 1.0, ticks)], 2.0)[0].1;
        assert_eq!(at(&mut census, 500), 0.0, "nothing is known of the time before");
        let half = 500 + ticks_per_second() as u64;
        assert_eq!(at(&mut census, half), 50.0);
    }

    #[test]
    fn this_process_is_found() {
        let found = if Path::new("/proc/uptime").exists() {
            from_proc(Path::new("/proc"))
        } else {
            from_ps()
        };
        assert!(found.iter().any(|sample| sample.pid == u64::from(std::process::id())));
    }

    #[test]
    fn lines_of_ps() {
        let found = ps_line("  501  1,5  2048 /usr/bin/some thing").unwrap();
        assert_eq!((found.pid, found.name.as_str(), found.mem_mb), (501, "some thing", 2.0));
        assert_eq!(found.cpu, Cpu::Percent(1.5));
    }
}

use clap::Args;

use super::letter::Letter;
use super::{in_form, named};
use crate::command::Status;
use crate::output::{self, Output};
use crate::reach::{At, Reach};
use crate::times::moment;

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// Id of the dead letter, or its end.
    id: String,
    /// The form in which its event is shown: `written`, `latest`, or the number of a version of its
    /// schema.
    #[arg(long, value_name = "FORM")]
    reads: Option<String>,
    #[command(flatten)]
    pub(super) at: At,
}

pub(super) async fn run(show: &Show, reach: &Reach, output: &Output) -> anyhow::Result<Status> {
    let mut letter = named(reach, &show.id).await?;
    if let Some(form) = &show.reads {
        letter = in_form(reach, letter, form).await?;
    }
    output.record(&letter, described)?;
    let (short, flag) = (letter.short(), reach.flag());
    if letter.state == "waiting" {
        output.hint(&format!("try it again:  prom dlq replay {short}{flag}"));
        output.hint(&format!("mend it first: prom dlq edit {short}{flag}"));
    }
    Ok(Status::Done)
}

pub(super) fn described(letter: &Letter) -> String {
    let mut lines = vec![
        format!("dead letter  {}", letter.id),
        format!("  state      {}", letter.state),
        format!("  position   {}/{}/{}", letter.topic, letter.partition, letter.offset),
        format!("  group      {}", letter.group),
        format!("  reason     {}", letter.reason.replace('_', " ")),
        format!("  kind       {}", letter.kind()),
    ];
    let mut error = letter.err.lines();
    lines.push(format!("  error      {}", error.next().unwrap_or("(none was given)")));
    lines.extend(error.map(|line| format!("             {line}")));
    if letter.round > 0 {
        lines.push(format!("  returned   {}×", letter.round));
    }
    let times: Vec<String> = letter.times.iter().rev().map(|at| moment(*at)).collect();
    lines.push(format!("  attempts   {}, newest first: {}", letter.attempts, times.join(", ")));
    match &letter.original {
        None => lines.push("  event      was gone before it could be copied".to_owned()),
        Some(event) => {
            lines.push(format!("  event      {}", event.id));
            if let Some(key) = &event.key {
                lines.push(format!("  key        {key}"));
            }
            for (name, value) in event.headers.iter() {
                lines.push(format!("  header     {name}: {value}"));
            }
            lines.push(format!("  payload    {}", event.payload.as_str()));
        }
    }
    lines.iter().map(|line| output::plain(line)).collect::<Vec<_>>().join("\n")
}

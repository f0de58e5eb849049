//! The parent's commands on standard input: the lines `go` and `stop`. Several may come in one read,
//! and a read may end within a line.

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Start the run.
    Go,
    /// End it.
    Stop,
}

/// What was read, up to the last line that is complete.
#[derive(Debug, Default)]
pub struct Commands(Vec<u8>);

impl Commands {
    /// Adds what was read.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }

    /// Takes the next command; other lines are skipped.
    pub fn take_next(&mut self) -> Option<Command> {
        while let Some(end) = self.0.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = self.0.drain(..=end).collect();
            match line.trim_ascii() {
                b"go" => return Some(Command::Go),
                b"stop" => return Some(Command::Stop),
                _ => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(reads: &[&[u8]]) -> Vec<Command> {
        let mut commands = Commands::default();
        let mut found = Vec::new();
        for read in reads {
            commands.extend(read);
            found.extend(std::iter::from_fn(|| commands.take_next()));
        }
        found
    }

    #[test]
    fn two_commands_in_one_read_are_two_commands() {
        assert_eq!(all(&[b"go\nstop\n"]), [Command::Go, Command::Stop]);
    }

    #[test]
    fn what_is_no_command_is_skipped_and_does_not_hide_the_next() {
        assert_eq!(all(&[b"\n\xff\xfe\nGO\ngo on\nstop it\n stop \r\n"]), [Command::Stop]);
    }

    #[test]
    fn a_line_without_its_end_is_no_command_yet() {
        assert_eq!(all(&[b"sto"]), []);
        assert_eq!(all(&[b"go"]), []);
        assert_eq!(all(&[b"g", b"o", b"\nst", b"op\n"]), [Command::Go, Command::Stop]);
    }

    proptest! {
        #[test]
        fn how_the_bytes_are_cut_into_reads_makes_no_difference(
            lines in prop::collection::vec(prop::sample::select(vec!["go", "stop", "", "x", "gogo"]), 0..12),
            cuts in prop::collection::vec(1..9_usize, 1..20),
        ) {
            let text: Vec<u8> = lines.iter().flat_map(|line| format!("{line}\n").into_bytes()).collect();
            let mut rest = &text[..];
            let mut reads = Vec::new();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (read, after) = rest.split_at((*cut).min(rest.len()));
                reads.push(read);
                rest = after;
            }
            let expected: Vec<Command> = lines
                .iter()
                .filter_map(|line| match *line {
                    "go" => Some(Command::Go),
                    "stop" => Some(Command::Stop),
                    _ => None,
                })
                .collect();
            prop_assert_eq!(all(&reads), expected);
        }
    }
}

//! The examples of the page.

/// A `console` block: commands with their output. The words behind `console` are limits of the server's process, such
/// as `ulimit=-f 8192`; a `toml` block before it is the configuration of the server.
#[derive(Default)]
pub(super) struct Example {
    pub(super) configuration: String,
    pub(super) limit: String,
    pub(super) steps: Vec<Step>,
}

pub(super) struct Step {
    /// The line of the page.
    pub(super) line: usize,
    pub(super) command: String,
    pub(super) output: String,
}

enum Block {
    Prose,
    Configuration,
    Console(Example),
    Other,
}

impl Example {
    pub(super) fn all_of(page: &str) -> Vec<Self> {
        let (mut examples, mut block, mut configuration) = (vec![], Block::Prose, String::new());
        for (number, line) in (1..).zip(page.lines()) {
            block = match (block, line.strip_prefix("```")) {
                (Block::Prose, None) => Block::Prose,
                (Block::Prose, Some("toml")) => {
                    configuration.clear();
                    Block::Configuration
                }
                (Block::Prose, Some(info)) => match info.strip_prefix("console") {
                    Some(words) => Block::Console(Self {
                        configuration: std::mem::take(&mut configuration),
                        limit: words.trim().replace('=', " "),
                        steps: vec![],
                    }),
                    None => Block::Other,
                },
                (Block::Console(example), Some(_)) => {
                    examples.push(example);
                    Block::Prose
                }
                (_, Some(_)) => Block::Prose,
                (Block::Console(mut example), None) => {
                    example.add(number, line);
                    Block::Console(example)
                }
                (Block::Configuration, None) => {
                    configuration += line;
                    configuration.push('\n');
                    Block::Configuration
                }
                (Block::Other, None) => Block::Other,
            };
        }
        examples
    }

    fn add(&mut self, number: usize, line: &str) {
        let last = self.steps.last_mut();
        match (line.strip_prefix("$ "), last) {
            (Some(command), _) => {
                let (command, output) = (command.to_owned(), String::new());
                self.steps.push(Step { line: number, command, output });
            }
            (None, Some(step)) if step.command.ends_with('\\') && step.output.is_empty() => {
                step.command += "\n";
                step.command += line;
            }
            (None, Some(step)) => {
                if !step.output.is_empty() {
                    step.output.push('\n');
                }
                step.output += line;
            }
            (None, None) => panic!("line {number}: output without a command"),
        }
    }
}

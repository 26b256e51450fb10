//! What was found, and what to do about it.

use std::fmt::Write;

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    Ok,
    Warning,
    Problem,
}

impl Level {
    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "PROBLEM",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    pub(super) level: Level,
    /// What it is about: config, store, system, clock, server or mongodb.
    pub(super) area: &'static str,
    pub(super) message: String,
    /// What to do; for everything but `Ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) advice: Option<String>,
}

impl Finding {
    pub(super) fn ok(area: &'static str, message: impl Into<String>) -> Self {
        Self { level: Level::Ok, area, message: message.into(), advice: None }
    }

    pub(super) fn warning(
        area: &'static str,
        message: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let advice = Some(advice.into());
        Self { level: Level::Warning, area, message: message.into(), advice }
    }

    pub(super) fn problem(
        area: &'static str,
        message: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let advice = Some(advice.into());
        Self { level: Level::Problem, area, message: message.into(), advice }
    }
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Findings {
    findings: Vec<Finding>,
}

impl Findings {
    pub(super) fn push(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    pub(super) fn has_problems(&self) -> bool {
        self.count(Level::Problem) > 0
    }

    #[cfg(test)]
    pub(super) fn levels(&self) -> Vec<Level> {
        self.findings.iter().map(|finding| finding.level).collect()
    }

    fn count(&self, level: Level) -> usize {
        self.findings.iter().filter(|finding| finding.level == level).count()
    }

    pub(super) fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct Report<'a> {
            problems: usize,
            warnings: usize,
            #[serde(flatten)]
            findings: &'a Findings,
        }
        let (problems, warnings) = (self.count(Level::Problem), self.count(Level::Warning));
        let report = Report { problems, warnings, findings: self };
        serde_json::to_string(&report).expect("findings are JSON") + "\n"
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        for Finding { level, area, message, advice } in &self.findings {
            let level = level.word();
            writeln!(text, "{level:<8} {area:<8} {message}").expect("a String takes any text");
            if let Some(advice) = advice {
                writeln!(text, "{:17} -> {advice}", "").expect("a String takes any text");
            }
        }
        let of = |count: usize, what: &str| match count {
            1 => format!("1 {what}"),
            count => format!("{count} {what}s"),
        };
        let (problems, warnings) = (self.count(Level::Problem), self.count(Level::Warning));
        text + &format!("{}, {}\n", of(problems, "problem"), of(warnings, "warning"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_findings_with_advice_and_counts_them() {
        let mut findings = Findings::default();
        findings.push(Finding::ok("config", "is valid"));
        assert!(!findings.has_problems());
        findings.push(Finding::problem("store", "the disk is full", "make room"));
        assert!(findings.has_problems());
        let expected = "ok       config   is valid\n\
                        PROBLEM  store    the disk is full\n                  -> make room\n\
                        1 problem, 0 warnings\n";
        assert_eq!(findings.to_text(), expected);
        let json = "{\"problems\":1,\"warnings\":0,\"findings\":[\
                    {\"level\":\"ok\",\"area\":\"config\",\"message\":\"is valid\"},\
                    {\"level\":\"problem\",\"area\":\"store\",\"message\":\"the disk is full\",\
                    \"advice\":\"make room\"}]}\n";
        assert_eq!(findings.to_json(), json);
    }
}

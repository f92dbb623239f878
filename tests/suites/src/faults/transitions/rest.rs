//! What must hold of the operator's process when all is done.

use std::fs;

use anyhow::{Context, Result, bail};
use testkit::{cluster::Cluster, operator::Operator};

use super::{QUIET, Report, Stage};

impl Stage {
    /// What must hold when all is done: the same process, with nothing to do and nothing to say.
    pub(super) async fn at_rest(&self, cluster: &Cluster, report: &mut Report) -> Result<()> {
        let (code, words) = self.operator.page("/livez").await?;
        if code != 200 {
            report.violations.push(format!("/livez: {code} {words}"));
        }
        if process(&self.operator)? != self.process {
            report.violations.push("another process".to_owned());
        }
        report.memory.1 = self.memory()?;
        if report.memory.1 > 2 * report.memory.0 {
            let (before, after) = report.memory;
            let grown = format!("memory: {before} KiB before, {after} KiB after");
            report.violations.push(grown);
        }
        let series = |name: &str, kind: &str| format!(r#"{name}{{kind="{kind}"}}"#);
        let bugs = |kind: &str| {
            format!(r#"orchestrator_reconcile_errors_total{{kind="{kind}",class="Bug"}}"#)
        };
        for kind in self.kinds.keys() {
            for series in [
                series("orchestrator_queue_depth", kind),
                series("orchestrator_undecodable_objects", kind),
                bugs(kind),
            ] {
                let value = self.operator.metric(&series).await?;
                if value > 0.0 {
                    report.violations.push(format!("{series} is {value}"));
                }
            }
        }
        let log = self.operator.log_text()?;
        let panics = log.lines().filter(|line| line.contains("panicked"));
        for line in panics.take(10) {
            report.violations.push(format!("in the log: {line}"));
        }
        self.check_quiet(cluster, report).await
    }

    async fn check_quiet(&self, cluster: &Cluster, report: &mut Report) -> Result<()> {
        let audit = cluster.audit();
        let mark = audit.mark(&self.client).await?;
        tokio::time::sleep(QUIET).await;
        let counts = audit.counts(&self.client, mark).await?;
        let user = &self.operator.user;
        for (request, count) in counts.0 {
            let is_lease = request.resource.starts_with("leases");
            if request.is_write() && request.user == *user && !is_lease {
                let (verb, resource) = (&request.verb, &request.resource);
                let words = format!("not quiet: {verb} {resource} {count} times");
                report.violations.push(words);
            }
        }
        Ok(())
    }

    /// What the operator's process holds, in KiB.
    pub(super) fn memory(&self) -> Result<u64> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.process.0))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        Ok(number.context("no VmRSS")?.parse()?)
    }
}

/// Number and start time of the operator's process: nothing else has its address as an argument.
pub(super) fn process(operator: &Operator) -> Result<(u32, String)> {
    let wanted = format!("\0--probe-address\0{}\0", operator.probe_address);
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(Ok(number)) = name.to_str().map(str::parse::<u32>) else {
            continue;
        };
        // A process may end while we look.
        let Ok(arguments) = fs::read(format!("/proc/{number}/cmdline")) else {
            continue;
        };
        if String::from_utf8_lossy(&arguments).contains(&wanted) {
            let stat = fs::read_to_string(format!("/proc/{number}/stat"))?;
            let start = stat
                .rsplit(')')
                .next()
                .and_then(|rest| rest.split(' ').nth(20));
            return Ok((number, start.context("no start time")?.to_owned()));
        }
    }
    bail!("the operator's process is gone")
}

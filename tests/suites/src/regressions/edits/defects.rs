//! Edits for tests that once could not fail, or that asserted less than their names say.

use super::{Edit, Needs, Regression, Suite};

const ENGINE: Suite = Suite::lib("engine");
const SUITES: Suite = Suite::bin("suites");
const TESTKIT: Suite = Suite::lib("testkit");
const OPERATOR_CLUSTER: Suite = Suite::test("operator", "suite", Needs::Cluster);

pub(super) const EDITS: &[Regression] = &[
    Regression {
        id: "one_key_is_never_looked_at_twice_at_once",
        bug: "a key is handed out while it is reconciled",
        edits: &[Edit {
            file: "crates/engine/src/queue.rs",
            old: r"        if entry.running {
            entry.urgent = true;
        } else {
            entry.backoff = None;
            self.schedule(key, now, None);
        }",
            new: r"        entry.urgent = entry.running;
        entry.backoff = None;
        self.schedule(key, now, None);",
        }],
        suite: ENGINE,
    },
    Regression {
        id: "a_key_is_handed_out_once_and_once_more_if_something_happened",
        bug: "a key is handed out while it is reconciled",
        edits: &[Edit {
            file: "crates/engine/src/queue.rs",
            old: "            entry.again = true;\n            return;\n",
            new: "            entry.again = true;\n",
        }],
        suite: ENGINE,
    },
    Regression {
        id: "a_stored_retry_is_kept_over_a_restart",
        bug: "after a restart the attempts are counted from the start",
        edits: &[Edit {
            file: "crates/engine/src/controller/worker.rs",
            old: "            attempt: retry.attempt,\n",
            new: "            attempt: 0,\n",
        }],
        suite: ENGINE,
    },
    Regression {
        id: "a_stored_time_is_replaced_when_it_has_passed",
        bug: "`status.retry.nextAt` stays in the past",
        edits: &[Edit {
            file: "crates/engine/src/controller/worker.rs",
            old: "known.attempt == attempt && is_to_come(known, now)\n",
            new: "known.attempt == attempt\n",
        }],
        suite: ENGINE,
    },
    Regression {
        id: "a_transient_fault_is_shown_after_two_seconds_and_not_before",
        bug: "the first failed reconciliation is not in the status",
        edits: &[Edit {
            file: "crates/engine/src/controller/worker.rs",
            old: "REPORT_TRANSIENT_AFTER: Duration = Duration::from_secs(2);",
            new: "REPORT_TRANSIENT_AFTER: Duration = Duration::from_secs(30);",
        }],
        suite: ENGINE,
    },
    Regression {
        id: "a_webhook_that_is_down_is_named_at_once",
        bug: "a webhook that is down looks like an API server that is down",
        edits: &[Edit {
            file: "crates/engine/src/fault.rs",
            old: "FailedWebhook::find(message)",
            new: "FailedWebhook::find(&message[..0])",
        }],
        suite: ENGINE,
    },
    Regression {
        id: "a_write_that_hangs_is_shown_while_it_hangs_and_its_webhook_afterwards",
        bug: "the operator does not wait for the response that names the webhook",
        edits: &[Edit {
            file: "crates/engine/src/apply.rs",
            old: "WRITE_REQUEST_TIMEOUT: Duration = Duration::from_secs(36);",
            new: "WRITE_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);",
        }],
        suite: ENGINE,
    },
    Regression {
        id: "a_rejected_child_is_shown_with_a_deadline_and_is_the_end_at_that_time",
        bug: "an error drops the deadline of the decision",
        edits: &[Edit {
            file: "crates/engine/src/status_update.rs",
            old: "observed.and_then(|observed| observed.effects_deadline);",
            new: "observed.and_then(|_| None);",
        }],
        suite: ENGINE,
    },
    Regression {
        id: "each_wait_of_each_reason_has_a_stored_end",
        bug: "a run waits indefinitely for a child that the API server rejects",
        edits: &[Edit {
            file: "crates/attempts/src/start.rs",
            old: "    decision = decision.effects_until(run.start_deadline());\n    decision.effects",
            new: "    decision.effects",
        }],
        suite: Suite::lib("tasks"),
    },
    Regression {
        id: "a_lost_log_is_reported_in_the_same_words_and_only_if_it_is_known",
        bug: "the message of an attempt that something else ended does not report that its log is lost",
        edits: &[Edit {
            file: "crates/attempts/src/finish.rs",
            old: "    let message = if reason == Reason::Succeeded {",
            new: "    let message = if reason == Reason::Succeeded || message.is_ascii() {",
        }],
        suite: Suite::lib("tasks"),
    },
    Regression {
        id: "a_lost_log_is_reported_in_the_same_words_and_only_if_it_is_known",
        bug: "a log counts as lost although no container had started",
        edits: &[Edit {
            file: "crates/attempts/src/lost_log.rs",
            old: "    has_started && pod.is_none_or(",
            new: "    (has_started || !uid.is_empty()) && pod.is_none_or(",
        }],
        suite: Suite::lib("tasks"),
    },
    Regression {
        id: "a_job_that_no_record_announces_is_stopped_and_kept_if_it_is_preserved",
        bug: "a Job that the status does not announce is deleted although it is preserved",
        edits: &[Edit {
            file: "crates/attempts/src/stop.rs",
            old: "    if run.is_preserved() {\n        return of(run, job);",
            new: "    if run.is_preserved() && job.suspended {\n        return of(run, job);",
        }],
        suite: Suite::lib("tasks"),
    },
    Regression {
        id: "the_transition_time_moves_with_the_status_and_not_with_the_message",
        bug: "`lastTransitionTime` never moves (S2.2)",
        edits: &[Edit {
            file: "crates/api/src/status.rs",
            old: r"            Some(known) if known.status == value => known.last_transition_time.clone(),
            Some(_) | None => Time(now),",
            new: r"            Some(known) => known.last_transition_time.clone(),
            None => Time(now),",
        }],
        suite: Suite::lib("api"),
    },
    Regression {
        id: "the_status_of_a_redis_says_how_it_stands",
        bug: "`redisStatus` shows the server (S2.2)",
        edits: &[Edit {
            file: "crates/tenants/src/decide/mod.rs",
            old: "status.redis_status = component::redis(state, &wanted);",
            new: "status.redis_status = component::server(state, &wanted);",
        }],
        suite: Suite::lib("tenants"),
    },
    Regression {
        id: "each_child_is_logged_at_info_and_each_cache_at_debug",
        bug: "created children are not logged (S0.8, S2.11)",
        edits: &[Edit {
            file: "crates/engine/src/reconcile/effects.rs",
            old: r"    tracing::info!(
        kind,
        %object,
        effect,
        target_kind,",
            new: r"    tracing::debug!(
        kind,
        %object,
        effect,
        target_kind,",
        }],
        suite: OPERATOR_CLUSTER,
    },
    Regression {
        id: "a_clean_up_that_is_denied_is_shown_for_each_kind_of_run",
        bug: "a denied clean-up of a finished run has no Event (S0.5)",
        edits: &[Edit {
            file: "crates/engine/src/reconcile.rs",
            old: r"            self.publish(&transition, now).await;
            return Ok(());",
            new: r"            drop(transition);
            return Ok(());",
        }],
        suite: OPERATOR_CLUSTER,
    },
    Regression {
        id: "a_task_run_is_the_seeds_and_what_is_listed_beside_it",
        bug: "a TaskRun has another phase than those of the seed (S3.1)",
        edits: &[Edit {
            file: "charts/orchestrator/generated/crds/tasks/taskruns.yaml",
            old: "                - Succeeded\n                - Failed\n",
            new: "                - Succeeded\n                - Failed\n                - Paused\n",
        }],
        suite: Suite::test("api", "server", Needs::Nothing),
    },
    Regression {
        id: "to_have_run_nothing_or_to_have_skipped_is_not_success",
        bug: "skipped cases on the testbed are a success",
        edits: &[Edit {
            file: "tests/testkit/src/suite.rs",
            old: " && (self.skipped == 0 || may_skip)",
            new: "",
        }],
        suite: TESTKIT,
    },
    Regression {
        id: "a_violation_without_faults_is_a_divergence_and_is_not_played_again",
        bug: "a false success without faults is forgiven",
        edits: &[Edit {
            file: "tests/testkit/src/faults/campaign.rs",
            old: "        return Ok(Taught::Diverges(first.violations, first.kept));",
            new: "        return Ok(Taught::Learned(first.learned, Arc::new(first.outcome)));",
        }],
        suite: TESTKIT,
    },
    Regression {
        id: "o1_a_phase_twice_in_a_row_is_said",
        bug: "O1 ignores the phase history",
        edits: &[Edit {
            file: "tests/testkit/src/faults/oracles/ends.rs",
            old: r#"first["phase"] == second["phase"] && first["attempt"] == second["attempt"]"#,
            new: "first == second && first.is_null()",
        }],
        suite: TESTKIT,
    },
    Regression {
        id: "o7_a_private_text_may_be_in_a_spec_and_is_repeated_nowhere",
        bug: "O7 ignores private texts in logs",
        edits: &[Edit {
            file: "tests/testkit/src/faults/oracles/ends.rs",
            old: r#"        if let Some(line) = evidence.logs.iter().position(|line| line.contains(text)) {
            say(format!("line {} of the log", line + 1));
        }
        if evidence.metrics.contains(text) {"#,
            new: "        if evidence.metrics.contains(text) {",
        }],
        suite: TESTKIT,
    },
    Regression {
        id: "points_that_no_fault_reached_are_named",
        bug: "plans that reached nothing are as good as others",
        edits: &[Edit {
            file: "tests/testkit/src/faults/campaign/tally.rs",
            old: " && missed <= all / MISSED",
            new: " && missed <= all",
        }],
        suite: TESTKIT,
    },
    Regression {
        id: "faults_of_compound_schedules_are_counted_for_themselves",
        bug: "one fault of a compound schedule counts as all of them",
        edits: &[Edit {
            file: "tests/testkit/src/faults/campaign/tally.rs",
            old: "self.whole_schedules.add(usize::from(hit == planned), 1);",
            new: "self.whole_schedules.add(usize::from(hit > 0), 1);",
        }],
        suite: TESTKIT,
    },
    Regression {
        id: "over_all_seeds_every_plan_has_its_turn",
        bug: "the share is the same with each commit",
        edits: &[Edit {
            file: "tests/testkit/src/faults/plan.rs",
            old: "group.sort_by_key(|plan| std::cmp::Reverse(rank(seed, &plan.id())));",
            new: "group.sort_by_key(|plan| std::cmp::Reverse(rank(7, &plan.id())));",
        }],
        suite: TESTKIT,
    },
    Regression {
        id: "another_reason_than_the_objects_is_an_error",
        bug: "a wrong reason of `orc why` is skipped",
        edits: &[Edit {
            file: "tests/suites/src/e2e/why.rs",
            old: r#"    ensure!(
        found.reason == reason,
        "orc why says '{}', the object '{reason}'",
        found.reason
    );
    if"#,
            new: r"    if found.reason != reason {
        return Ok(());
    }
    if",
        }],
        suite: SUITES,
    },
    Regression {
        id: "an_empty_status_is_an_error",
        bug: "a case accepts a missing status (S0.3)",
        edits: &[Edit {
            file: "tests/suites/src/e2e/reading.rs",
            old: r#"    let status = status.context("S0.3: no status, although the CRD has a default")?;
"#,
            new: r"    let Some(status) = status else {
        return Ok(());
    };
",
        }],
        suite: SUITES,
    },
    Regression {
        id: "a_green_over_a_child_that_is_wrong_for_four_seconds_is_a_lie",
        bug: "O0 of Tenants is blind to eight seconds",
        edits: &[Edit {
            file: "tests/suites/src/faults/tenants/oracles.rs",
            old: "LATE: Duration = Duration::from_secs(3);",
            new: "LATE: Duration = Duration::from_secs(8);",
        }],
        suite: SUITES,
    },
    Regression {
        id: "a_green_needs_each_child_as_the_spec_asks",
        bug: "O0 of Tenants does not compare images",
        edits: &[Edit {
            file: "tests/suites/src/faults/tenants/oracles/expected.rs",
            old: r#"    container["image"] == asked["image"]
        && ("#,
            new: "    (",
        }],
        suite: SUITES,
    },
    Regression {
        id: "a_lie_counts_as_seen_by_its_oracle_only",
        bug: "any oracle may see a mutant of the class false success",
        edits: &[Edit {
            file: "tests/suites/src/faults/mutants.rs",
            old: "        Some(oracle) => sighting.oracles.iter().any(|one| one == oracle),",
            new: "        Some(_) => !sighting.oracles.is_empty(),",
        }],
        suite: SUITES,
    },
    Regression {
        id: "over_time_every_mutant_that_plays_can_see_has_its_turn",
        bug: "CI tries the same mutants with each commit",
        edits: &[Edit {
            file: "tests/suites/src/faults/mutants.rs",
            old: "left.swap_remove(random.below(left.len()))",
            new: "left.swap_remove(random.below(1))",
        }],
        suite: SUITES,
    },
    Regression {
        id: "an_old_page_says_so_and_a_new_one_does_not",
        bug: "a report page does not say that the code has changed",
        edits: &[Edit {
            file: "tests/testkit/src/report_age.rs",
            old: r"        Age::Unknown => return page.to_owned(),
        Age::Current => None,",
            new: r"        Age::Unknown => return page.to_owned(),
        _ if page.is_ascii() => None,
        Age::Current => None,",
        }],
        suite: TESTKIT,
    },
];

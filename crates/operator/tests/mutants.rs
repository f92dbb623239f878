//! Bugs can be put into a test build, and into no other.

#[cfg(not(feature = "mutants"))]
mod without {
    use std::fs;

    use mutant::Mutant;

    #[test]
    fn a_release_has_no_mutants() {
        let binary = fs::read(env!("CARGO_BIN_EXE_orchestrator")).unwrap();
        let text = String::from_utf8_lossy(&binary);
        assert!(text.contains("ORCHESTRATOR_RUN"), "not the operator");
        assert!(!text.contains("ORCHESTRATOR_MUTANT"));
        for mutant in [Mutant::HotLoop, Mutant::CancelUnheard] {
            assert!(!text.contains(mutant.about().words), "{mutant:?}");
        }
    }
}

#[cfg(feature = "mutants")]
mod with {
    use std::{
        fs,
        process::{Command, Stdio},
    };

    /// What the operator says with this mutant, which it cannot get far with: there is no cluster.
    fn said(mutant: Option<&str>) -> String {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config.yaml");
        fs::write(&config, "concurrency: 4\n").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_orchestrator"));
        command
            .arg("--config")
            .arg(&config)
            .env_clear()
            .stdin(Stdio::null());
        if let Some(mutant) = mutant {
            command.env("ORCHESTRATOR_MUTANT", mutant);
        }
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    }

    #[test]
    fn a_test_build_says_which_mutant_is_on() {
        for (mutant, words) in [
            (None, "this is a test build: no mutant is on"),
            (
                Some("hot-loop"),
                "this is a test build: mutant 'hot-loop' is on",
            ),
        ] {
            let said = said(mutant);
            assert!(said.contains(words) && said.contains("WARN"), "{said}");
            assert!(said.contains("--kubeconfig"), "{said}");
        }
    }

    #[test]
    fn a_mutant_that_is_not_known_is_refused() {
        for wrong in ["", "none-such", "Hot-Loop"] {
            let said = said(Some(wrong));
            assert!(said.contains("ORCHESTRATOR_MUTANT"), "{said}");
            assert!(said.contains(&format!("no mutant '{wrong}'")), "{said}");
            assert!(!said.contains("--kubeconfig"), "{said}");
        }
    }
}

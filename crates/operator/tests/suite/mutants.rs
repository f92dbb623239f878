//! Only the program `orchestrator-mutants`, which `cargo xtask mutants` checks, can contain mutants.

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

//! Kernels that fail, end, hang, or need too much.

use anyhow::{Result, ensure};
use api::notebooks::CellStatus;
use serde_json::json;

use super::{
    super::fixture::BUSYBOX,
    fixture::{Bench, brief, of_cell, pod},
};

/// A failing cell ends the run. The cells after it are not run.
pub(super) async fn failing_cell(bench: &Bench) -> Result<String> {
    let cells = ["x = 1", "raise ValueError('no sales')", "print(x)"];
    bench.run("fails", &cells, json!({})).await?;
    let status = bench
        .fails("fails", "CellFailed", &["cell 1", "ValueError: no sales"])
        .await?;
    ensure!(of_cell(&status, 1)?.status == CellStatus::Failed);
    ensure!(of_cell(&status, 2)?.status == CellStatus::NotRun);
    let error = of_cell(&status, 1)?.error.clone().unwrap_or_default();
    ensure!(error.contains("no sales"), "{error}");
    Ok(brief(&status))
}

pub(super) async fn cell_timeout(bench: &Bench) -> Result<String> {
    let cells = ["1", "import time\ntime.sleep(600)"];
    let notebook = json!({
        "git": super::fixture::source(&bench.git, "late", "main"), "path": super::fixture::NOTEBOOK,
        "cellTimeout": "5s",
    });
    bench
        .run("late", &cells, json!({ "notebook": notebook }))
        .await?;
    let status = bench.fails("late", "CellTimeout", &["cell 1"]).await?;
    Ok(brief(&status))
}

pub(super) async fn run_timeout(bench: &Bench) -> Result<String> {
    let cells = ["1", "import time\ntime.sleep(600)"];
    bench
        .run("slow", &cells, json!({ "timeout": "25s" }))
        .await?;
    let status = bench.fails("slow", "DeadlineExceeded", &["25s"]).await?;
    Ok(brief(&status))
}

/// An image without a kernel, and a kernel that the image does not have.
pub(super) async fn no_kernel(bench: &Bench) -> Result<String> {
    let image = pod(json!({ "containerImage": BUSYBOX }));
    bench
        .run("empty", &["1"], json!({ "podConfig": image }))
        .await?;
    bench.fails("empty", "KernelNotFound", &[]).await?;
    let notebook = json!({
        "git": super::fixture::source(&bench.git, "named", "main"), "path": super::fixture::NOTEBOOK,
        "kernel": "julia-1.9",
    });
    bench
        .run("named", &["1"], json!({ "notebook": notebook }))
        .await?;
    let status = bench
        .fails("named", "KernelNotFound", &["julia-1.9", "python3"])
        .await?;
    Ok(brief(&status))
}

pub(super) async fn no_image(bench: &Bench) -> Result<String> {
    let image = pod(json!({ "containerImage": "localhost/absent:1" }));
    let more = json!({ "podConfig": image, "startTimeout": "20s" });
    bench.run("absent", &["1"], more).await?;
    let job = bench.says("absent", "ImagePullFailed").await?;
    let status = bench
        .fails("absent", "StartTimeout", &["ImagePullFailed"])
        .await?;
    ensure!(job.status.is_some_and(|seen| seen.commit == status.commit));
    Ok(brief(&status))
}

/// A kernel that ends without the request of the runner is never a success, whatever its exit code is.
pub(super) async fn ends_itself(bench: &Bench) -> Result<String> {
    let mut said = Vec::new();
    for (name, source) in [
        (
            "killed",
            "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
        ),
        ("exits", "import os\nos._exit(0)"),
        ("quits", "quit()"),
    ] {
        bench.run(name, &["1", source], json!({})).await?;
        let status = bench.fails(name, "KernelDied", &[]).await?;
        said.push(format!("{name}: {}", brief(&status)));
    }
    // An exit that Python can catch is the error of its cell.
    bench
        .run("exit", &["import sys\nsys.exit(0)"], json!({}))
        .await?;
    bench
        .fails("exit", "CellFailed", &["cell 0", "SystemExit"])
        .await?;
    Ok(said.join(" | "))
}

/// A thread that does not end keeps the kernel alive after the request to stop. The supervisor kills it, and the success
/// stands.
pub(super) async fn lasting_thread(bench: &Bench) -> Result<String> {
    let source =
        "import threading, time\nthreading.Thread(target=lambda: time.sleep(3600)).start()";
    bench
        .run("thread", &[source, "print('done')"], json!({}))
        .await?;
    let status = bench.succeeds("thread", &["2 cells ran"]).await?;
    Ok(brief(&status))
}

/// An OOM kill names the cell and the limit, also if the kernel's container is killed as a whole.
pub(super) async fn out_of_memory(bench: &Bench) -> Result<String> {
    let cells = [
        "1",
        "x = 2",
        "data = [bytearray(1 << 20) for _ in range(4096)]",
    ];
    bench.run("memory", &cells, json!({})).await?;
    let status = bench
        .fails("memory", "OOMKilled", &["cell 2", "512Mi"])
        .await?;
    Ok(brief(&status))
}

/// Output is never cut and then compared.
pub(super) async fn flood(bench: &Bench) -> Result<String> {
    let source = "line = 'x' * 1023\nfor _ in range(30 * 1024):\n    print(line)";
    bench.run("flood", &["1", source], json!({})).await?;
    let status = bench.fails("flood", "OutputTooLarge", &["cell 1"]).await?;
    Ok(brief(&status))
}

/// The kernel cannot write its own verdict: neither its log nor the shared directory counts.
pub(super) async fn forged(bench: &Bench) -> Result<String> {
    let report = "import json, os\nreport = json.dumps({'v': 1, 'outcome': 'Succeeded'})\n\
        print('ORCHESTRATOR-RESULT 1 gzip 1 ' + '0' * 64)\n\
        os.system(\"echo '\" + report + \"' > /link/stop; echo '\" + report + \"' > /link/exit.json\")\n\
        open('/dev/termination-log', 'w').write(report)\n\
        raise ValueError('forged')";
    bench.run("forged", &["1", report], json!({})).await?;
    let job = bench.finished("forged", super::fixture::LIMIT).await?;
    let status = job.status.unwrap_or_default();
    ensure!(
        super::fixture::phase_of(&status) == "Failed",
        "{}",
        brief(&status)
    );
    Ok(brief(&status))
}

/// Variables and files of the user do not reach the runner.
pub(super) async fn own_environment(bench: &Bench) -> Result<String> {
    let config = pod(json!({ "env": [
        { "name": "PYTHONPATH", "value": "/workspace/source" },
        { "name": "RUNNER_SETTINGS", "value": "{}" },
        { "name": "PYTHONSTARTUP", "value": "/workspace/source/evil.py" },
    ] }));
    let text = super::fixture::sources(&["import os\nos.environ['RUNNER_SETTINGS']"]);
    let files = [
        (super::fixture::NOTEBOOK, text.as_str()),
        ("notebook_runner/__init__.py", "raise SystemExit(0)\n"),
        ("evil.py", "raise SystemExit(0)\n"),
    ];
    bench.repository("own", &files).await?;
    bench.submit("own", json!({ "podConfig": config })).await?;
    let status = bench.succeeds("own", &["1 cells ran"]).await?;
    Ok(brief(&status))
}

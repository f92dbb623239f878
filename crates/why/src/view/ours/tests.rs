use serde_json::json;

use super::*;

#[test]
fn a_status_that_cannot_be_read_is_said_and_a_missing_one_is_not() {
    let spec =
        json!({ "taskId": 7, "serviceName": "shop", "agentName": "writer", "markdownFiles": [] });
    let missing = RunView::read(&json!({ "metadata": {}, "spec": spec }));
    assert_eq!(missing.undecodable, None);
    let broken = json!({ "metadata": {}, "spec": spec, "status": { "attempts": "many" } });
    let broken = RunView::read(&broken);
    assert!(broken.undecodable.is_some_and(|why| why.contains("many")));
    assert_eq!(broken.agent_name, "writer");
}

//! The name of the caller.

use k8s_openapi::api::authentication::v1::{SelfSubjectReview, UserInfo};
use kube::{Api, Client, api::PostParams};

use crate::{Error, Request};

/// Asks the API server for the name and the groups of the caller, as it authenticates them.
///
/// # Errors
/// An error of the server.
pub async fn who_am_i(client: &Client) -> Result<UserInfo, Error> {
    let api: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = api
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await
        .map_err(|error| {
            let request = Request {
                verb: "create",
                kind: "SelfSubjectReview",
                resource: "selfsubjectreviews.authentication.k8s.io",
                name: None,
                namespace: None,
            };
            request.failed(error)
        })?;
    let user = review.status.and_then(|status| status.user_info);
    Ok(user.unwrap_or_default())
}

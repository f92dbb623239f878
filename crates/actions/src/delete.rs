//! Deletes an object.

use kube::{Client, api::DeleteParams};

use crate::{Error, Object, ObjectName, Request, objects};

/// The result of a deletion.
#[derive(Debug, Clone, PartialEq)]
pub enum Deleted {
    /// The object no longer exists.
    Gone,
    /// The object is being deleted: its operator has to stop its work first.
    InProgress(Box<Object>),
}

/// Deletes an object. The API server deletes its children.
///
/// # Caveats
/// The deletion is by name, like kubectl's. A caller that repeats it after an error may delete an
/// object that was created meanwhile.
///
/// # Errors
/// [`Error::NotFound`], or an error of the server.
pub async fn delete(client: &Client, namespace: &str, name: &ObjectName) -> Result<Deleted, Error> {
    let api = objects(client, name.kind, Some(namespace));
    let deleted = api.delete(&name.name, &DeleteParams::default()).await;
    match deleted {
        Ok(left) => Ok(left.left().map_or(Deleted::Gone, |object| {
            let object = Object::new(name.kind, object);
            // Without a finalizer, the server removes the object with this request.
            match object
                .metadata
                .finalizers
                .as_ref()
                .is_some_and(|all| !all.is_empty())
            {
                true => Deleted::InProgress(Box::new(object)),
                false => Deleted::Gone,
            }
        })),
        Err(error) => Err(Request::about("delete", name, namespace).failed(error)),
    }
}

//! Checks whether an existing object with a name of ours is ours.

use api::{
    Reason,
    decide::{ErrorClass, Manifest, ReconcileError},
    messages, names,
};
use serde_json::Value;

/// Returns an error unless the existing object is the one that we wanted to create. The UID of its owner is a label or,
/// for an object whose labels repeat those of another one, an annotation.
pub(super) fn ours(wanted: &Manifest, found: &Value) -> Result<(), ReconcileError> {
    let what = format!("{} '{}'", wanted.resource.kind, wanted.name);
    not_terminating(found, &what)?;
    let label = |object: &Value, name: &str| {
        let value = object.pointer("/metadata/labels")?.get(name)?.as_str()?;
        Some(value.to_owned())
    };
    let annotations = found.pointer("/metadata/annotations");
    let annotated = annotations.and_then(|all| all.get(names::UID)?.as_str());
    let is_ours = label(found, names::UID) == Some(names::label_value(&wanted.owner_uid))
        || annotated == Some(&wanted.owner_uid);
    if !is_ours {
        let of_whom = |object: &Value| {
            let (kind, name) = (label(object, names::KIND)?, label(object, names::NAME)?);
            Some((kind, name))
        };
        // An owner of the same kind and name but with another UID is deleted: two cannot exist at
        // once. The garbage collector deletes an object that still references it. Without a reference,
        // the object stays.
        let is_collected = found
            .pointer("/metadata/ownerReferences")
            .and_then(Value::as_array)
            .is_some_and(|owners| !owners.is_empty());
        let is_earlier =
            of_whom(found).filter(|owner| of_whom(&wanted.body).as_ref() == Some(owner));
        return Err(match is_earlier {
            Some((kind, name)) if is_collected => ReconcileError::new(
                ErrorClass::Transient,
                Reason::ChildNameTaken,
                messages::left_over(&what, &format!("{kind} '{name}'"), true),
            ),
            Some((kind, name)) => ReconcileError::new(
                ErrorClass::Invalid,
                Reason::ChildNameTaken,
                messages::left_over(&what, &format!("{kind} '{name}'"), false),
            ),
            None => {
                let message = match of_whom(found) {
                    Some((kind, name)) => {
                        messages::name_taken_by(&what, &format!("{kind} '{name}'"))
                    }
                    None => messages::name_taken(&what),
                };
                ReconcileError::new(ErrorClass::Invalid, Reason::ChildNameTaken, message)
            }
        });
    }
    let intent = found
        .pointer("/metadata/annotations")
        .and_then(|annotations| annotations.get(names::SPEC_HASH))
        .and_then(Value::as_str);
    if intent != wanted.intent() {
        return Err(ReconcileError::new(
            ErrorClass::Invalid,
            Reason::ChildNameTaken,
            format!(
                "{what} is ours, but was made for another intent; it was not touched. Delete it"
            ),
        ));
    }
    let content = |object: &Value| api::content::hash(wanted.resource.kind, object);
    if content(found) != content(&wanted.body) {
        return Err(ReconcileError::new(
            ErrorClass::Invalid,
            Reason::ChildNameTaken,
            format!(
                "{what} carries our labels, but its content is not what is asked for: someone else made it, or what it was made from has changed since; it was not touched. Delete it, and it is created again"
            ),
        ));
    }
    Ok(())
}

/// Returns an error for an object with a deletion timestamp. `what` is its kind and name.
fn not_terminating(found: &Value, what: &str) -> Result<(), ReconcileError> {
    if found.pointer("/metadata/deletionTimestamp").is_none() {
        return Ok(());
    }
    Err(ReconcileError::new(
        ErrorClass::Transient,
        Reason::Progressing,
        format!("an earlier {what} is still being deleted; waiting until its deletion is complete"),
    ))
}

/// Returns an error unless we may apply to an existing object. We may if its UID label is ours or,
/// where someone removed the label, its UID annotation. We also may if a former owner of the same name
/// retained or created it. After a restore from a backup, an owner has another UID.
pub(super) fn may_apply(wanted: &Manifest, found: &Value) -> Result<(), ReconcileError> {
    let what = format!("{} '{}'", wanted.resource.kind, wanted.name);
    not_terminating(found, &what)?;
    let text = |kind: &str, name: &str| {
        let all = found.pointer(&["/metadata/", kind].concat())?;
        all.get(name)?.as_str()
    };
    let uid = names::label_value(&wanted.owner_uid);
    let is_ours = text("labels", names::UID) == Some(&uid)
        || text("annotations", names::UID) == Some(&wanted.owner_uid);
    let label = |name: &str| wanted.body.pointer("/metadata/labels")?.get(name)?.as_str();
    let is_same =
        |name: &str| text("labels", name).is_some() && text("labels", name) == label(name);
    let is_left = wanted.adopt_from.as_ref().is_some_and(|(mark, owner)| {
        text("annotations", mark) == Some(owner.as_str())
            || is_same(names::KIND) && is_same(names::NAME)
    });
    if is_ours || is_left {
        return Ok(());
    }
    Err(ReconcileError::new(
        ErrorClass::Invalid,
        Reason::ChildNameTaken,
        messages::name_taken(&what),
    ))
}

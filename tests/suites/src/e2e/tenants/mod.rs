//! `cargo xtask e2e tenants`: Tenants on the real node, with a real Redis, a real server and a real
//! policy engine; the operator has the chart's rights and nothing more.

mod attacks;
mod delete;
mod drift;
mod fixture;
mod isolation;
mod owners;
mod reader;
mod ready;

pub(super) use fixture::{HOME, abandon, install};

use testkit::suite::Case;

use crate::cases::{alone, case, last};

/// What others may try.
pub(super) fn attacks() -> Vec<Case> {
    vec![
        case!(
            "deaf-backoff",
            "C4: a closing policy is deleted while something else is refused",
            attacks::deaf_backoff
        ),
        case!(
            "stripped-tenant",
            "C5: someone removes the finalizer of a Tenant",
            attacks::stripped_finalizer
        ),
        case!(
            "internet-inside",
            "A6: a Tenant that may reach the internet tries the cluster",
            owners::internet_inside
        ),
        case!(
            "retained-opens",
            "A7: someone connects to the Redis of a retained namespace",
            owners::retained_opens
        ),
        case!(
            "password-by-image",
            "A3: who may update Tenants changes the image that gets the password",
            owners::password_by_image
        ),
        case!(
            "external-ips",
            "A6: an owner claims addresses of others by a Service",
            owners::external_ips
        ),
        case!(
            "system-priority",
            "A6: an owner creates Pods that displace all others",
            owners::system_priority
        ),
        case!(
            "endless-objects",
            "A6: an owner of a Tenant without resources fills the storage",
            owners::endless_objects
        ),
    ]
}

/// The slow ones first: the others fill the gaps.
pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            "changes",
            "S2.1: replicas, image, configuration and quota are changed",
            ready::changes
        ),
        case!(
            "deletions",
            "every deleted child comes back",
            drift::deletions
        ),
        case!(
            "edits",
            "every edited child is repaired, what others set stays",
            drift::edits
        ),
        case!(
            "isolated",
            "proven, and a policy by hand is found at once",
            isolation::proven
        ),
        case!(
            "retained",
            "Retain, and taken back with its data",
            delete::retained
        ),
        case!(
            "runs",
            "R50, S2.2: Running only after both are ready",
            ready::runs
        ),
        case!(
            "apart",
            "what A stores is in A's Redis and not in B's",
            ready::apart
        ),
        case!(
            "owners",
            "owners can use their namespace and nothing else",
            drift::owners
        ),
        case!(
            "owner-reads",
            "an owner reads their own Tenant after the commands of the docs",
            reader::reads_own_tenant
        ),
        case!(
            "suspended",
            "scaled to zero and back, with its data",
            ready::suspended
        ),
        case!("bare", "R57: without Redis and server", ready::bare),
        case!("bad-image", "an image that nobody has", ready::bad_image),
        case!(
            "small-quota",
            "a quota that is too small",
            ready::small_quota
        ),
        case!(
            "no-volume",
            "a volume that cannot be bound",
            ready::no_volume
        ),
        case!(
            "wrong-probe",
            "a probe that is answered with 404",
            ready::wrong_probe
        ),
        case!(
            "crash-loop",
            "a program that does not start",
            ready::crash_loop
        ),
        case!(
            "no-policies",
            "policies switched off are visible",
            isolation::nothing
        ),
        case!(
            "delete",
            "S2.4: Delete takes namespace and data",
            delete::with_all
        ),
        case!(
            "blocked",
            "R56: a foreign finalizer is named, and waited for",
            delete::blocked
        ),
        case!(
            "foreign",
            "R55: a foreign namespace is refused and untouched",
            delete::foreign
        ),
        case!(
            "name-taken",
            "R50: what is in the way of a child fails the Tenant, and is untouched",
            delete::name_taken
        ),
        alone!(
            "not-enforced",
            "the policy engine is stopped, and it is found",
            isolation::not_enforced
        ),
        alone!(
            "absent",
            "made and deleted without an operator",
            delete::absent
        ),
        alone!(
            "killed",
            "the operator is killed at each step",
            delete::killed
        ),
        alone!(
            "definition",
            "deleting the CRD deletes no namespace",
            delete::definition
        ),
        last!("well", "no bug and no panic in all of that", delete::well),
    ]
}

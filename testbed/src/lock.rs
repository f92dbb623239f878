//! File locks that the kernel releases when their holder dies, however it dies.

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
};

/// How often a waiter looks.
const PAUSE: Duration = Duration::from_millis(20);

/// A held lock. Dropping it releases it.
///
/// Caveat: the file must not be removed while anybody may take the lock: a second file of the same
/// name is a second lock.
#[derive(Debug)]
pub struct Lock(Flock<File>);

impl Lock {
    /// Takes the lock if nobody holds it.
    ///
    /// # Errors
    /// When the file cannot be opened, or locked for another reason than a holder.
    pub fn try_take(path: &Path) -> Result<Option<Self>> {
        lock(path, FlockArg::LockExclusiveNonblock).map(|held| held.map(Self))
    }

    /// Takes the lock and signs it with this process's number. If it is held, tells `waiting` once
    /// who signed it, and waits.
    ///
    /// # Errors
    /// When the file cannot be opened or locked, or somebody holds it for longer than `limit`.
    pub fn take(path: &Path, limit: Duration, waiting: &mut dyn FnMut(&str)) -> Result<Self> {
        let start = Instant::now();
        let mut told = false;
        loop {
            if let Some(mut lock) = Self::try_take(path)? {
                lock.sign(path)?;
                return Ok(lock);
            }
            if !told {
                told = true;
                waiting(&holder(path)?);
            }
            if start.elapsed() > limit {
                let seconds = limit.as_secs();
                bail!(
                    "waited {seconds} s for '{}', held by {}",
                    path.display(),
                    holder(path)?
                );
            }
            thread::sleep(PAUSE);
        }
    }

    /// Whether somebody holds it. Asking neither takes nor signs it.
    ///
    /// # Errors
    /// As [`Lock::try_take`].
    pub fn is_held(path: &Path) -> Result<bool> {
        // A shared lock for an instant: two who ask do not see each other, and a taker waits for it.
        lock(path, FlockArg::LockSharedNonblock).map(|free| free.is_none())
    }

    fn sign(&mut self, path: &Path) -> Result<()> {
        let text = format!("process {}\n", std::process::id());
        self.0
            .set_len(0)
            .and_then(|()| self.0.write_all(text.as_bytes()))
            .with_context(|| format!("cannot sign '{}'", path.display()))
    }
}

/// `process N`, as the last holder signed.
///
/// # Errors
/// When the file is unreadable.
pub fn holder(path: &Path) -> Result<String> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read '{}'", path.display()))?;
    Ok(match text.trim() {
        "" => "a process that has just taken it".to_owned(),
        text => text.to_owned(),
    })
}

fn lock(path: &Path, how: FlockArg) -> Result<Option<Flock<File>>> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(path)
        .with_context(|| format!("cannot open '{}'", path.display()))?;
    match Flock::lock(file, how) {
        Ok(held) => Ok(Some(held)),
        Err((_, Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, error)) => Err(error).with_context(|| format!("cannot lock '{}'", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn second_holder_waits_and_is_told_who_holds_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let held = Lock::take(&path, LONG, &mut |_| ()).unwrap();
        assert!(Lock::try_take(&path).unwrap().is_none());
        let waiter = thread::spawn({
            let path = path.clone();
            move || {
                let mut holder = String::new();
                let lock = Lock::take(&path, LONG, &mut |text| text.clone_into(&mut holder));
                drop(lock.unwrap());
                holder
            }
        });
        thread::sleep(Duration::from_millis(100));
        drop(held);
        assert_eq!(
            waiter.join().unwrap(),
            format!("process {}", std::process::id())
        );
    }

    #[test]
    fn waiting_has_an_end_that_names_the_holder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let _held = Lock::take(&path, LONG, &mut |_| ()).unwrap();
        let error = Lock::take(&path, Duration::from_millis(50), &mut |_| ()).unwrap_err();
        assert!(
            error.to_string().contains(&std::process::id().to_string()),
            "{error}"
        );
    }

    #[test]
    fn asking_neither_takes_nor_signs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        assert!(!Lock::is_held(&path).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "");
        let held = Lock::try_take(&path).unwrap().unwrap();
        assert!(Lock::is_held(&path).unwrap());
        drop(held);
        assert!(!Lock::is_held(&path).unwrap());
    }
}

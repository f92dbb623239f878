//! File locks that the kernel releases when their holder dies, however it dies.

use std::{
    fs::File,
    io::{Read, Write},
    path::Path,
};

use anyhow::{Context, Result};
use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
};

/// A held lock. Dropping it releases it.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "held, not read")] Flock<File>);

impl Lock {
    /// Takes the lock if nobody holds it.
    ///
    /// # Errors
    /// When the file cannot be opened or locked for another reason than a holder.
    pub fn try_take(path: &Path) -> Result<Option<Self>> {
        match Flock::lock(open(path)?, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Self::sign(lock, path).map(Some),
            Err((_, Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, error)) => {
                Err(error).with_context(|| format!("cannot lock '{}'", path.display()))
            }
        }
    }

    /// Takes the lock; if it is held, tells `waiting` who holds it and waits for as long as it takes.
    ///
    /// # Errors
    /// When the file cannot be opened or locked.
    pub fn take(path: &Path, waiting: &mut dyn FnMut(&str)) -> Result<Self> {
        if let Some(lock) = Self::try_take(path)? {
            return Ok(lock);
        }
        let mut holder = String::new();
        open(path)?.take(64).read_to_string(&mut holder)?;
        waiting(holder.trim());
        let lock = Flock::lock(open(path)?, FlockArg::LockExclusive)
            .map_err(|(_, error)| error)
            .with_context(|| format!("cannot lock '{}'", path.display()))?;
        Self::sign(lock, path)
    }

    fn sign(mut lock: Flock<File>, path: &Path) -> Result<Self> {
        lock.set_len(0)
            .and_then(|()| lock.write_all(format!("process {}\n", std::process::id()).as_bytes()))
            .with_context(|| format!("cannot sign '{}'", path.display()))?;
        Ok(Self(lock))
    }
}

fn open(path: &Path) -> Result<File> {
    File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(path)
        .with_context(|| format!("cannot open '{}'", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_holder_waits_and_is_told_who_holds_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let held = Lock::try_take(&path).unwrap().unwrap();
        assert!(Lock::try_take(&path).unwrap().is_none());
        let waiter = std::thread::spawn({
            let path = path.clone();
            move || {
                let mut holder = String::new();
                let lock = Lock::take(&path, &mut |text| text.clone_into(&mut holder)).unwrap();
                drop(lock);
                holder
            }
        });
        std::thread::sleep(std::time::Duration::from_millis(100));
        drop(held);
        assert_eq!(
            waiter.join().unwrap(),
            format!("process {}", std::process::id())
        );
    }
}

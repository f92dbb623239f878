//! Objects that do not change any more, kept as compressed JSON.
//!
//! Finished runs are most of the objects in a cache. They are read at a restart and at their deletion. As a struct, a
//! run has several times the size of its JSON. The JSON has three times the size of the compressed text.

use std::{
    fmt,
    io::{self, Read, Write},
    sync::Arc,
};

use flate2::{Compression, read::DeflateDecoder, write::DeflateEncoder};
use serde::{Serialize, de::DeserializeOwned};

/// A selection of the objects of a cache to pack, with the functions to pack and unpack them.
pub struct Packing<T> {
    is_at_rest: fn(&T) -> bool,
    pack: fn(&T) -> io::Result<Box<[u8]>>,
    unpack: fn(&[u8]) -> io::Result<T>,
}

impl<T> fmt::Debug for Packing<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Packing")
    }
}

impl<T: Serialize + DeserializeOwned> Packing<T> {
    /// Returns a packing of the objects that are at rest.
    #[must_use]
    pub fn of(is_at_rest: fn(&T) -> bool) -> Self {
        Self {
            is_at_rest,
            pack,
            unpack,
        }
    }
}

fn pack<T: Serialize>(object: &T) -> io::Result<Box<[u8]>> {
    let text = serde_json::to_vec(object)?;
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&text)?;
    Ok(encoder.finish()?.into_boxed_slice())
}

fn unpack<T: DeserializeOwned>(packed: &[u8]) -> io::Result<T> {
    let mut text = Vec::new();
    DeflateDecoder::new(packed).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// A cached object, whole or packed.
#[derive(Debug)]
pub(super) enum Kept<T> {
    Whole(Arc<T>),
    Packed(Box<[u8]>),
}

impl<T> Kept<T> {
    /// Packs the object if it is at rest. An object that could not be read back stays whole.
    pub(super) fn new(object: &Arc<T>, packing: Option<&Packing<T>>) -> Self {
        if let Some(packing) = packing
            && (packing.is_at_rest)(object)
            && let Ok(packed) = (packing.pack)(object)
            && (packing.unpack)(&packed).is_ok()
        {
            return Self::Packed(packed);
        }
        Self::Whole(Arc::clone(object))
    }

    /// Returns the object. Each packed object was read back once, so there always is one.
    pub(super) fn whole(&self, packing: Option<&Packing<T>>) -> Option<Arc<T>> {
        match self {
            Self::Whole(object) => Some(Arc::clone(object)),
            Self::Packed(packed) => match (packing?.unpack)(packed) {
                Ok(object) => Some(Arc::new(object)),
                Err(error) => {
                    tracing::error!(%error, "a packed object of the cache cannot be decoded");
                    None
                }
            },
        }
    }

    pub(super) fn active(&self) -> Option<&T> {
        match self {
            Self::Whole(object) => Some(object),
            Self::Packed(_) => None,
        }
    }

    pub(super) fn is_packed(&self) -> bool {
        matches!(self, Self::Packed(_))
    }
}

//! Typed access to maps: a key and a value are plain data whose bytes are what the program sees.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, Object, RingBufferBuilder};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::Error;
use crate::grace::GracePeriod;

/// A map of the loaded object, by name.
#[derive(Debug)]
pub(crate) struct Map {
    name: &'static str,
    handle: MapHandle,
}

impl Map {
    /// `value` is the size of its values as this crate knows them.
    pub(crate) fn of(object: &Object, name: &'static str, value: usize) -> Result<Self, Error> {
        Self::any(object, name)?.with(value)
    }

    /// One whose values are of no interest.
    pub(crate) fn any(object: &Object, name: &'static str) -> Result<Self, Error> {
        let map = object.maps().find(|map| map.name() == name);
        let map = map.ok_or_else(|| Error::Missing { kind: "map", name: name.to_owned() })?;
        let handle = MapHandle::try_from(&map);
        handle.map(|handle| Self { name, handle }).map_err(|source| Error::Map { map: name, operation: "open", source })
    }

    /// One that was [pinned](Self::pin_as).
    pub(crate) fn pinned(path: &Path, name: &'static str, value: usize) -> Result<Self, Error> {
        let named = || path.display().to_string();
        let handle = MapHandle::from_pinned_path(path);
        let handle = handle.map_err(|source| Error::Pin { operation: "open", path: named(), source })?;
        Self { name, handle }.with(value)
    }

    /// The map that an array of maps has there.
    pub(crate) fn inner(&self, index: u32, value: usize) -> Result<Option<Self>, Error> {
        let Some(id) = self.get::<u32, u32>(&index)? else { return Ok(None) };
        let handle = MapHandle::from_map_id(id).map_err(self.failed("open what is in"))?;
        Self { name: self.name, handle }.with(value).map(Some)
    }

    fn with(self, value: usize) -> Result<Self, Error> {
        if self.handle.value_size() as usize != value {
            return Err(Error::Missing { kind: "map of this layout", name: self.name.to_owned() });
        }
        Ok(self)
    }

    fn failed(&self, operation: &'static str) -> impl FnOnce(libbpf_rs::Error) -> Error {
        let map = self.name;
        move |source| Error::Map { map, operation, source }
    }

    pub(crate) fn entries(&self) -> u32 {
        self.handle.max_entries()
    }

    pub(crate) fn set<K, V>(&self, key: &K, value: &V) -> Result<(), Error>
    where
        K: IntoBytes + Immutable,
        V: IntoBytes + Immutable,
    {
        self.handle.update(key.as_bytes(), value.as_bytes(), MapFlags::ANY).map_err(self.failed("write to"))
    }

    pub(crate) fn get<K, V>(&self, key: &K) -> Result<Option<V>, Error>
    where
        K: IntoBytes + Immutable,
        V: FromBytes,
    {
        let bytes = self.handle.lookup(key.as_bytes(), MapFlags::ANY).map_err(self.failed("read"))?;
        Ok(bytes.map(|bytes| self.decode(&bytes)))
    }

    /// All keys of a hash map.
    pub(crate) fn keys<K: FromBytes>(&self) -> Vec<K> {
        self.handle.keys().map(|bytes| self.decode(&bytes)).collect()
    }

    /// Keys and values of a hash, as far as they stay meanwhile.
    pub(crate) fn entries_of_hash<K, V>(&self) -> Vec<(K, V)>
    where
        K: FromBytes + IntoBytes + Immutable,
        V: FromBytes,
    {
        let keys = self.keys::<K>().into_iter();
        keys.filter_map(|key| self.get(&key).ok().flatten().map(|value| (key, value))).collect()
    }

    /// Keys and values of a hash that may be large, thousands with each call of the kernel: those that are there all the time.
    /// (libbpf-rs's batches end with the first one that is not full, which of a hash need not be the last.)
    pub(crate) fn each_of_hash<K: FromBytes, V: FromBytes>(&self, mut with: impl FnMut(K, V)) -> Result<(), Error> {
        let each = rig_sys::xdp::each_of_hash(self.as_fd(), |key, value| with(self.decode(key), self.decode(value)));
        each.map_err(|source| self.failed("read")(source.into()))
    }

    /// The element of an array, which is always there.
    pub(crate) fn at<V: FromBytes>(&self, index: u32) -> Result<V, Error> {
        self.get(&index)?.ok_or_else(|| Error::Missing { kind: "element in map", name: self.name.to_owned() })
    }

    /// One value for each possible CPU.
    pub(crate) fn per_cpu<V: FromBytes>(&self, index: u32) -> Result<Vec<V>, Error> {
        let values = self.handle.lookup_percpu(index.as_bytes(), MapFlags::ANY).map_err(self.failed("read"))?;
        Ok(values.unwrap_or_default().iter().map(|bytes| self.decode(bytes)).collect())
    }

    /// The same value for every possible CPU.
    pub(crate) fn set_all_cpus<V: IntoBytes + Immutable>(&self, index: u32, value: &V) -> Result<(), Error> {
        let cpus = libbpf_rs::num_possible_cpus().map_err(self.failed("count the CPUs of"))?;
        let values = vec![value.as_bytes().to_vec(); cpus];
        self.handle.update_percpu(index.as_bytes(), &values, MapFlags::ANY).map_err(self.failed("write to"))
    }

    pub(crate) fn set_per_cpu<V: IntoBytes + Immutable>(&self, index: u32, values: &[V]) -> Result<(), Error> {
        let values: Vec<Vec<u8>> = values.iter().map(|value| value.as_bytes().to_vec()).collect();
        self.handle.update_percpu(index.as_bytes(), &values, MapFlags::ANY).map_err(self.failed("write to"))
    }

    pub(crate) fn remove<K: IntoBytes + Immutable>(&self, key: &K) -> Result<(), Error> {
        self.handle.delete(key.as_bytes()).map_err(self.failed("delete from"))
    }

    /// Consecutive elements of an array from `first`.
    pub(crate) fn set_range<V: IntoBytes + Immutable>(&self, first: u32, values: &[V]) -> Result<(), Error> {
        if values.is_empty() {
            return Ok(());
        }
        let keys: Vec<u32> = (first..).take(values.len()).collect();
        let count = values.len() as u32;
        self.handle
            .update_batch(keys.as_bytes(), values.as_bytes(), count, MapFlags::ANY, MapFlags::ANY)
            .map_err(self.failed("write to"))
    }

    /// All elements of an array, in their order, until `with` breaks off.
    pub(crate) fn each<V: FromBytes>(&self, mut with: impl FnMut(u32, V) -> ControlFlow<()>) -> Result<(), Error> {
        const BATCH: u32 = 4096;
        let batch = self.handle.lookup_batch(BATCH.min(self.entries()), MapFlags::ANY, MapFlags::ANY);
        for (key, value) in batch.map_err(self.failed("read"))? {
            if with(u32::from_ne_bytes([key[0], key[1], key[2], key[3]]), self.decode(&value)).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// The first `count` elements of an array, with one call.
    pub(crate) fn first<V: FromBytes>(&self, count: u32, mut with: impl FnMut(V)) -> Result<(), Error> {
        if count == 0 {
            return Ok(());
        }
        let batch = self.handle.lookup_batch(count.min(self.entries()), MapFlags::ANY, MapFlags::ANY);
        for (_, value) in batch.map_err(self.failed("read"))?.take(count as usize) {
            with(self.decode(&value));
        }
        Ok(())
    }

    fn decode<V: FromBytes>(&self, bytes: &[u8]) -> V {
        V::read_from_bytes(bytes).unwrap_or_else(|_| {
            unreachable!("{}: values of {} bytes; the layout is checked at load", self.name, bytes.len())
        })
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// The kernel's number of it.
    pub(crate) fn id(&self) -> Result<u32, Error> {
        let info = libbpf_rs::MapInfo::new(self.handle.as_fd()).map_err(self.failed("ask about"))?;
        Ok(info.info.id)
    }

    pub(crate) fn handle(&self) -> &MapHandle {
        &self.handle
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    pub(crate) fn pin(&self, directory: &Path) -> Result<(), Error> {
        self.pin_as(&directory.join(self.name))
    }

    pub(crate) fn pin_as(&self, path: &Path) -> Result<(), Error> {
        let named = path.display().to_string();
        let mut handle = MapHandle::try_from(&self.handle).map_err(self.failed("open"))?;
        handle.pin(path).map_err(|source| Error::Pin { operation: "pin", path: named, source })
    }
}

/// Makes all maps of an object as they were when it was loaded, but for its constants and `others`, and hands it back with its tables; `None`
/// where somebody else has them. No program of it may be attached.
pub(crate) fn emptied<T>(object: Arc<Object>, tables: Arc<T>, others: &[&str]) -> Result<Option<(Object, T)>, Error> {
    let (Some(object), Some(tables)) = (Arc::into_inner(object), Arc::into_inner(tables)) else { return Ok(None) };
    // One that was attached until now may still run.
    GracePeriod::new()?.wait()?;
    let stays = |name: &str| name.contains(".rodata") || others.contains(&name);
    object.maps().filter(|map| !stays(&map.name().to_string_lossy())).try_for_each(|map| {
        empty_one(&map).map_err(|source| Error::Map { map: "of the object", operation: "empty", source })
    })?;
    Ok(Some((object, tables)))
}

fn empty_one(map: &libbpf_rs::Map<'_>) -> libbpf_rs::Result<()> {
    /// Bytes that are written with one call.
    const BATCH: u32 = 1 << 18;
    let (entries, zero) = (map.max_entries(), vec![0; map.value_size() as usize]);
    match map.map_type() {
        MapType::Array => {
            let each = (BATCH / map.value_size()).clamp(1, entries);
            (0..entries).step_by(each as usize).try_for_each(|first| {
                let count = each.min(entries - first);
                let keys: Vec<u8> = (first..first + count).flat_map(u32::to_ne_bytes).collect();
                map.update_batch(&keys, &zero.repeat(count as usize), count, MapFlags::ANY, MapFlags::ANY)
            })
        }
        MapType::PercpuArray => {
            let values = vec![zero; libbpf_rs::num_possible_cpus()?];
            (0..entries).try_for_each(|index| map.update_percpu(&index.to_ne_bytes(), &values, MapFlags::ANY))
        }
        MapType::Hash | MapType::LruHash | MapType::LpmTrie => {
            map.keys().collect::<Vec<_>>().iter().try_for_each(|key| map.delete(key))
        }
        MapType::ArrayOfMaps | MapType::ProgArray | MapType::PerfEventArray => {
            (0..entries).try_for_each(|index| match map.delete(&index.to_ne_bytes()) {
                Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => Ok(()),
                deleted => deleted,
            })
        }
        MapType::RingBuf => {
            let mut reader = RingBufferBuilder::new();
            reader.add(map, |_| 0)?;
            reader.build()?.consume()
        }
        other => Err(io::Error::new(io::ErrorKind::Unsupported, format!("it is a map of type {other:?}")).into()),
    }
}

/// Bytes that a map has taken: `memlock` of its descriptor in /proc (Documentation/filesystems/proc.rst; Linux counts what elements
/// take from 6.4 on).
pub(crate) fn memory(map: &impl AsFd) -> io::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", map.as_fd().as_raw_fd()))?;
    let line = text.lines().find_map(|line| line.strip_prefix("memlock:"));
    let bytes = line.and_then(|line| line.trim().parse().ok());
    bytes.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the kernel does not tell what a map has taken"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use libbpf_rs::libbpf_sys::bpf_map_create_opts;
    use rig_skip::{Lack, skip};

    use crate::rights::check_may_trace;

    use super::*;

    fn map(kind: MapType, entries: u32) -> Map {
        let options = bpf_map_create_opts { sz: size_of::<bpf_map_create_opts>() as u64, ..Default::default() };
        let handle = MapHandle::create(kind, Some("all"), 4, 8, entries, &options).unwrap();
        Map { name: "all", handle }
    }

    /// Buckets have none, one or more of them, so that batches end before they are full.
    #[test]
    fn all_of_a_large_hash_is_read() {
        if let Err(error) = check_may_trace() {
            return skip(Lack::Root, error);
        }
        for (entries, count) in [(65_536_u32, 20_000_u32), (20_000, 20_000), (3, 3), (1, 1), (1, 0)] {
            let map = map(MapType::Hash, entries);
            // Odd, so that no two keys are the same.
            let keys: Vec<u32> = (0..count).map(|n| n.wrapping_mul(0x9e37_79b1)).collect();
            keys.iter().for_each(|key| map.set(key, &(u64::from(*key) + 1)).unwrap());
            let mut all = Vec::new();
            map.each_of_hash(|key: u32, value: u64| all.push((key, value))).unwrap();
            all.sort_unstable();
            let mut expected: Vec<_> = keys.into_iter().map(|key| (key, u64::from(key) + 1)).collect();
            expected.sort_unstable();
            assert!(all == expected, "{} of {count} in {entries}", all.len());
        }
        // Arrays are not read so.
        map(MapType::Array, 4).each_of_hash(|_: u32, _: u64| {}).unwrap_err();
    }
}

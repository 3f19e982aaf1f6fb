//! The directory in which netrig's processes find each other: running balancers and testbeds that are up. It does not
//! outlive the boot.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rig_sys::process;

/// The only owner of that directory: whatever netrig keeps there gets its place here, below a directory that is the
/// calling user's and that no other user writes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunDirectory {
    path: PathBuf,
}

/// Why a directory is not used. None of the ways out removes anything: a running balancer's socket may be in there.
#[derive(Debug, thiserror::Error)]
pub enum RunDirectoryError {
    #[error("cannot make {}: {source}: {}name another directory in NETRIG_RUN", .path.display(), or_root(.source))]
    Make { path: PathBuf, source: io::Error },
    #[error("cannot write to {}: {source}: {}name another directory in NETRIG_RUN", .path.display(), or_root(.source))]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot look at {}: {source}: name another directory in NETRIG_RUN", .path.display())]
    Look { path: PathBuf, source: io::Error },
    #[error(
        "{} is not a directory, and links are not followed there: name one in NETRIG_RUN", .path.display()
    )]
    NotADirectory { path: PathBuf },
    #[error(
        "{} belongs to user {owner}, and this is user {user}: run as that user, or name another directory in NETRIG_RUN",
        .path.display()
    )]
    Foreign { path: PathBuf, owner: u32, user: u32 },
    #[error(
        "others than its owner may write to {} (mode {:04o}), so what is in it cannot be trusted: look through it and \
         `chmod 0700 {}`, or name another directory in NETRIG_RUN",
        .path.display(), .mode & 0o7777, .path.display()
    )]
    OpenToOthers { path: PathBuf, mode: u32 },
}

/// To be root helps those who are not, where it is a matter of rights.
fn or_root(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied if process::user_id() != 0 => "run as root, or ",
        _ => "",
    }
}

/// What decides about the place.
#[derive(Debug)]
struct ProcessEnvironment {
    /// `$NETRIG_RUN` and `$XDG_RUNTIME_DIR`.
    named: Option<OsString>,
    runtime: Option<OsString>,
    user: u32,
    /// Whether `/run` is this user's, as it is for the machine's root and for a container's, but not for the root
    /// of a user namespace.
    owns_run: bool,
    temporary: PathBuf,
}

const MACHINES: &str = "/run/netrig";

impl ProcessEnvironment {
    fn here() -> Self {
        let user = process::user_id();
        Self {
            named: std::env::var_os("NETRIG_RUN"),
            runtime: std::env::var_os("XDG_RUNTIME_DIR"),
            user,
            owns_run: is_of("/run", user),
            temporary: std::env::temp_dir(),
        }
    }

    fn named(&self) -> Option<PathBuf> {
        self.named.as_ref().filter(|path| !path.is_empty()).map(PathBuf::from)
    }

    fn of_machine(&self) -> PathBuf {
        self.named().unwrap_or_else(|| PathBuf::from(MACHINES))
    }

    fn of_user(&self) -> PathBuf {
        if self.named.as_ref().is_some_and(|path| !path.is_empty()) || (self.user == 0 && self.owns_run) {
            return self.of_machine();
        }
        // Not another user's, as `su` without a login hands on: its owner could put something else in the place of ours.
        let runtime = self.runtime.as_ref().map(Path::new);
        match runtime.filter(|path| path.is_absolute() && is_of(path, self.user)) {
            Some(runtime) => runtime.join("netrig"),
            None => self.temporary.join(format!("netrig-{}", self.user)),
        }
    }
}

fn is_of(path: impl AsRef<Path>, user: u32) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == user)
}

impl RunDirectory {
    /// Of what belongs to the machine, for every user: `$NETRIG_RUN`, or `/run/netrig`.
    pub fn of_machine() -> Self {
        Self { path: ProcessEnvironment::here().of_machine() }
    }

    /// Of what belongs to the calling user: `$NETRIG_RUN`; for root otherwise the machine's, from whatever session, so
    /// that `$XDG_RUNTIME_DIR`, which ends with the last login, does not take the way to what goes on; for others
    /// `netrig` in `$XDG_RUNTIME_DIR`, or where there is none `netrig-UID` in the directory of temporary files.
    pub fn of_user() -> Self {
        Self { path: ProcessEnvironment::here().of_user() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is the one that the machine's services have without a word of the user's.
    pub fn is_of_machine(&self) -> bool {
        self.resolved() == resolved(Path::new(MACHINES))
    }

    /// Its absolute path without links, whether it is there yet or not: the same for all paths that lead to it.
    pub fn resolved(&self) -> PathBuf {
        resolved(&self.path)
    }

    #[cfg(test)]
    pub(crate) fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Makes the directory where it is missing, and trusts it or not.
    pub fn make(&self) -> Result<&Path, RunDirectoryError> {
        make_private(&self.path)?;
        Ok(&self.path)
    }

    /// Makes the directory where it is missing, for something that is written down there.
    ///
    /// # Errors
    /// As of [`Self::make`], and when nothing can be written to it, as on a file system that is read-only.
    pub fn make_to_write(&self) -> Result<&Path, RunDirectoryError> {
        let path = self.make()?;
        process::may_write(path).map_err(|source| RunDirectoryError::Write { path: path.into(), source })?;
        Ok(path)
    }

    /// The same of a directory in it.
    pub fn make_below(&self, name: &str) -> Result<PathBuf, RunDirectoryError> {
        let path = self.make()?.join(name);
        make_private(&path)?;
        Ok(path)
    }
}

fn resolved(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for there in absolute.ancestors() {
        if let (Ok(real), Ok(rest)) = (there.canonicalize(), absolute.strip_prefix(there)) {
            return if rest.as_os_str().is_empty() { real } else { real.join(rest) };
        }
    }
    absolute
}

/// A directory of the calling user's that no other user writes to. One that others may read is no danger: what is secret in
/// it has a mode of its own.
fn make_private(path: &Path) -> Result<(), RunDirectoryError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    if let Err(source) = made
        && source.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(RunDirectoryError::Make { path: path.into(), source });
    }
    // Looked at after it was made, and not through a link: what is trusted here cannot be exchanged by others any more.
    let metadata = fs::symlink_metadata(path);
    let metadata = metadata.map_err(|source| RunDirectoryError::Look { path: path.into(), source })?;
    let (owner, mode, user) = (metadata.uid(), metadata.mode(), process::user_id());
    if !metadata.is_dir() {
        return Err(RunDirectoryError::NotADirectory { path: path.into() });
    }
    if owner != user {
        return Err(RunDirectoryError::Foreign { path: path.into(), owner, user });
    }
    if mode & 0o022 != 0 {
        return Err(RunDirectoryError::OpenToOthers { path: path.into(), mode });
    }
    Ok(())
}

/// Writes a file for its user alone: whole or not at all. To be called by one process at a time for each path, so that
/// what a killed one has left of its attempt is overwritten by the next.
pub fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    write_beside(path, contents)?;
    fs::rename(beside(path), path)
}

/// The same of a file that is to be there after a loss of power, too, as the old one or the new one.
pub fn replace_durably(path: &Path, contents: &[u8]) -> io::Result<()> {
    write_beside(path, contents)?.sync_all()?;
    fs::rename(beside(path), path)?;
    // The name is the folder's (fsync(2)).
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

fn beside(path: &Path) -> PathBuf {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".new");
    unfinished.into()
}

fn write_beside(path: &Path, contents: &[u8]) -> io::Result<File> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(beside(path))?;
    file.write_all(contents)?;
    Ok(file)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    #[test]
    fn who_asks_and_where_decides_about_the_place() {
        let session = tempfile::tempdir().unwrap();
        let own = process::user_id();
        let of = |named: &str, runtime: &Path, user: u32, owns_run: bool| {
            let surroundings = ProcessEnvironment {
                named: Some(named.into()),
                runtime: Some(runtime.as_os_str().into()),
                user,
                owns_run,
                temporary: "/tmp".into(),
            };
            (surroundings.of_machine(), surroundings.of_user())
        };
        let place = |text: &str| PathBuf::from(text);
        let in_session = session.path().join("netrig");
        assert_eq!(of("/x", session.path(), own, false), (place("/x"), place("/x")));
        // Root has one place, logged in or not.
        assert_eq!(of("", session.path(), 0, true), (place(MACHINES), place(MACHINES)));
        assert_eq!(of("", session.path(), own, false), (place(MACHINES), in_session));
        // Another user's session, and none.
        let foreign = place(&format!("/tmp/netrig-{}", own + 1));
        assert_eq!(of("", session.path(), own + 1, false), (place(MACHINES), foreign));
        for runtime in ["", "relative", "/no/such/place"] {
            assert_eq!(of("", Path::new(runtime), own, false).1, place(&format!("/tmp/netrig-{own}")), "{runtime}");
        }
    }

    fn directory(path: PathBuf) -> RunDirectory {
        RunDirectory { path }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn what_is_made_is_for_the_user_alone_and_what_is_there_stays_as_it_is() {
        let home = tempfile::tempdir().unwrap();
        let run = directory(home.path().join("a/b"));
        let below = run.make_below("lb").unwrap();
        for made in [&home.path().join("a"), run.path(), &below] {
            assert_eq!(mode(made), 0o700, "{}", made.display());
        }
        // As an older netrig made them.
        for path in [run.path(), &below] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        run.make_below("lb").unwrap();
        assert_eq!((mode(run.path()), mode(&below)), (0o755, 0o755));
    }

    #[test]
    fn what_others_may_have_made_is_refused_and_nobody_is_told_to_remove_it() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("run");
        let refused = |part: &str| {
            let error = directory(path.clone()).make_below("lb").unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("NETRIG_RUN"), "{error}");
            assert!(!error.contains("remove") && !error.contains("rm "), "{error}");
        };
        fs::create_dir(&path).unwrap();
        for open in [0o770, 0o707, 0o1777] {
            fs::set_permissions(&path, fs::Permissions::from_mode(open)).unwrap();
            refused(&format!("mode {open:04o}"));
            assert_eq!(fs::read_dir(&path).unwrap().count(), 0, "something was made in it");
        }
        fs::remove_dir(&path).unwrap();

        // A link, into a directory that is there and to nowhere.
        for target in [home.path(), Path::new("/no/such/place")] {
            symlink(target, &path).unwrap();
            refused("is not a directory");
            fs::remove_file(&path).unwrap();
        }
        assert!(!home.path().join("lb").exists());
        fs::write(&path, "").unwrap();
        refused("is not a directory");
        fs::remove_file(&path).unwrap();

        // The directory in it counts, too.
        fs::create_dir(&path).unwrap();
        symlink("/tmp", path.join("lb")).unwrap();
        refused("run/lb is not a directory");

        // Only root can have a directory of another user.
        if chown(&path, Some(65_534), None).is_ok() {
            refused("belongs to user 65534, and this is user 0");
        }
    }

    #[test]
    fn a_file_is_replaced_whole_and_leftovers_are_no_obstacle() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("lb.toml");
        fs::write(home.path().join("lb.toml.new"), "half of something that was killed").unwrap();
        for contents in ["first", "2nd"] {
            replace(&path, contents.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), contents);
        }
        assert_eq!(mode(&path) & 0o077, 0o044 & mode(&path), "readable at most");
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    }
}

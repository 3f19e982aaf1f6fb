//! An image of this program and what it is linked with, so that no registry is asked for one.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::http::escaped;
use crate::{Engine, EngineError, Labels, Result};

/// Where the program is in the image.
const PROGRAM: &str = "netrig";
/// The folder of what it is linked with.
const LIBRARIES: &str = "lib";

/// An image that an engine has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub id: String,
    /// What a container runs to have this program; its arguments follow.
    pub command: Vec<String>,
}

/// This program as an image.
#[derive(Debug, Clone)]
pub struct OwnImage {
    program: PathBuf,
    libraries: Vec<PathBuf>,
}

impl OwnImage {
    /// # Errors
    /// When this process's own files are not to be found.
    pub fn new() -> io::Result<Self> {
        let program = fs::read_link("/proc/self/exe")?;
        let libraries = libraries_of(&fs::read_to_string("/proc/self/maps")?, &program);
        Ok(Self { program: "/proc/self/exe".into(), libraries })
    }

    /// The loader comes first where there is one: the place where the program looks for it is not in the image.
    fn command(&self) -> Vec<String> {
        let program = format!("/{PROGRAM}");
        let loader =
            self.libraries.iter().filter_map(|path| path.file_name()?.to_str()).find(|name| name.starts_with("ld-"));
        match loader {
            Some(loader) => {
                vec![format!("/{LIBRARIES}/{loader}"), "--library-path".to_owned(), format!("/{LIBRARIES}"), program]
            }
            None => vec![program],
        }
    }

    fn write(&self, to: impl Write) -> io::Result<()> {
        let mut tar = tar::Builder::new(to);
        append(&mut tar, &self.program, Path::new(PROGRAM))?;
        for library in &self.libraries {
            let Some(name) = library.file_name() else { continue };
            append(&mut tar, library, &Path::new(LIBRARIES).join(name))?;
            for other in names_of(library) {
                let mut header = tar::Header::new_gnu();
                header.set_entry_type(tar::EntryType::Symlink);
                header.set_size(0);
                tar.append_link(&mut header, Path::new(LIBRARIES).join(other), name)?;
            }
        }
        tar.finish()
    }
}

/// The shared objects that a process has mapped (proc_pid_maps(5)), its program apart.
fn libraries_of(maps: &str, program: &Path) -> Vec<PathBuf> {
    let path = |line: &str| line.find('/').map(|begin| PathBuf::from(&line[begin..]));
    let is_shared_object = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        path != program && (name.starts_with("ld-") || name.ends_with(".so") || name.contains(".so."))
    };
    let all: BTreeSet<PathBuf> = maps.lines().filter_map(path).filter(is_shared_object).collect();
    all.into_iter().collect()
}

/// The names, as links beside it, by which programs ask for a library: what is mapped is said by the file's own.
fn names_of(library: &Path) -> Vec<OsString> {
    let (Some(folder), Some(name)) = (library.parent(), library.file_name().and_then(|name| name.to_str())) else {
        return Vec::new();
    };
    let stem = name.split(".so").next().unwrap_or(name).split('-').next().unwrap_or(name);
    let is_of_library = |name: &OsString| {
        let path = folder.join(name);
        name.as_encoded_bytes().starts_with(stem.as_bytes())
            && path != library
            && fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink())
            && fs::canonicalize(&path).is_ok_and(|target| target == library)
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<OsString> = entries.map(|entry| entry.file_name()).filter(is_of_library).collect();
    names.sort();
    names
}

fn append(tar: &mut tar::Builder<impl Write>, from: &Path, to: &Path) -> io::Result<()> {
    let mut file = File::open(from)?;
    let mut header = tar::Header::new_gnu();
    header.set_size(file.metadata()?.len());
    header.set_mode(0o755);
    tar.append_data(&mut header, to, &mut file)
}

/// Counts what is written.
#[derive(Default)]
struct Length(u64);

impl Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Engine {
    /// Has the engine take this program as an image.
    ///
    /// # Errors
    /// When the program cannot be read, the engine's machine is of another architecture, or the engine refuses it.
    pub fn import(&self, own: &OwnImage, name: &str, labels: &Labels) -> Result<Image> {
        let what = "take an image of this program";
        let arch = &self.version().arch;
        if !arch.is_empty() && !is_of_this_machine(arch) {
            let why = format!("it runs {arch}, and this program is of {}", std::env::consts::ARCH);
            return Err(EngineError::Garbled { what: what.to_owned(), why });
        }
        let lost = |why| EngineError::Lost { what: "read this program".to_owned(), why };
        let mut length = Length::default();
        own.write(&mut length).map_err(lost)?;
        let changes: String = labels
            .iter()
            .map(|(key, value)| format!("&changes={}", escaped(&format!("LABEL {key}={value}"))))
            .collect();
        #[derive(Deserialize)]
        struct ImportAnswer {
            status: String,
        }
        let path = format!("/images/create?fromSrc=-&repo={}&tag=latest{changes}", escaped(name));
        let ImportAnswer { status } = self.upload(what, &path, length.0, |stream| own.write(stream))?;
        match status.starts_with("sha256:") {
            true => Ok(Image { id: status, command: own.command() }),
            false => Err(EngineError::Garbled { what: what.to_owned(), why: status }),
        }
    }
}

/// As Go calls architectures (`GOARCH`).
fn is_of_this_machine(arch: &str) -> bool {
    let own = std::env::consts::ARCH;
    arch == own || matches!((arch, own), ("amd64", "x86_64") | ("arm64", "aarch64"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_what_is_mapped_besides_the_program() {
        let maps = "\
5560000-5570000 r-xp 00000000 fe:00 1 /usr/bin/net rig.so.old
7f00000-7f10000 r-xp 00000000 fe:00 2                      /usr/lib/x86_64-linux-gnu/libc.so.6
7f10000-7f20000 r--p 00000000 fe:00 2                      /usr/lib/x86_64-linux-gnu/libc.so.6
7f20000-7f30000 r-xp 00000000 fe:00 3                      /usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2
7f30000-7f40000 rw-p 00000000 00:00 0                      [heap]
7f40000-7f50000 r--p 00000000 fe:00 4                      /usr/lib/locale/locale-archive
7f50000-7f60000 r-xp 00000000 00:00 0                      [vdso]
";
        let all = libraries_of(maps, Path::new("/usr/bin/net rig.so.old"));
        assert_eq!(
            all,
            ["/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", "/usr/lib/x86_64-linux-gnu/libc.so.6"]
                .map(PathBuf::from)
        );
        let own = OwnImage { program: "/bin/x".into(), libraries: all };
        assert_eq!(own.command(), ["/lib/ld-linux-x86-64.so.2", "--library-path", "/lib", "/netrig"]);
        assert_eq!(OwnImage { libraries: Vec::new(), ..own }.command(), ["/netrig"]);
    }

    #[test]
    fn an_image_has_the_program_and_its_libraries() {
        let mut bytes = Vec::new();
        let own = OwnImage::new().unwrap();
        own.write(&mut bytes).unwrap();
        let mut length = Length::default();
        own.write(&mut length).unwrap();
        assert_eq!(length.0, bytes.len() as u64);
        let mut archive = tar::Archive::new(&bytes[..]);
        let entries = archive.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            (entry.path().unwrap().into_owned(), entry.size())
        });
        let entries: Vec<(PathBuf, u64)> = entries.collect();
        assert_eq!(entries[0].0, Path::new("netrig"));
        assert_eq!(entries[0].1, fs::metadata("/proc/self/exe").unwrap().len());
        assert!(entries[1..].iter().all(|(path, _)| path.starts_with("lib")), "{entries:?}");
    }

    #[test]
    fn libraries_have_the_names_that_programs_ask_for() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().canonicalize().unwrap().join(name);
        fs::write(at("libelf-0.188.so"), "text").unwrap();
        fs::write(at("libelf.so.2"), "text").unwrap();
        std::os::unix::fs::symlink("libelf-0.188.so", at("libelf.so.1")).unwrap();
        std::os::unix::fs::symlink("libelf.so.1", at("libelf.so")).unwrap();
        std::os::unix::fs::symlink("libelf.so.2", at("libelf.so.3")).unwrap();
        assert_eq!(names_of(&at("libelf-0.188.so")), ["libelf.so", "libelf.so.1"]);
        assert!(names_of(&at("gone/libz.so.1.2")).is_empty());
    }
}

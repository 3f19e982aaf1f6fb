//! Kernels and their modules.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::cache;
use crate::command::{run, works};

/// A kernel that Debian packages.
#[derive(Debug)]
pub struct DebianKernel {
    /// As users name it: `6.1`.
    pub version: &'static str,
    suite: &'static str,
    /// What archives of the suite there are beside the first: folder and suite.
    more: Option<(&'static str, &'static str)>,
}

/// From the oldest on.
pub const DEBIAN: [DebianKernel; 3] = [
    DebianKernel { version: "5.10", suite: "bullseye", more: Some(("debian-security", "bullseye-security")) },
    DebianKernel { version: "6.1", suite: "bookworm", more: None },
    DebianKernel { version: "6.12", suite: "trixie", more: None },
];

/// A kernel that can be booted.
#[derive(Debug)]
pub struct Kernel {
    /// As `uname -r` has it there.
    pub release: String,
    pub image: PathBuf,
    /// The directory over that of the release, with modules.dep in it.
    pub modules: PathBuf,
}

pub fn versions() -> String {
    DEBIAN.map(|one| one.version).join(", ")
}

pub fn is_known(name: &str) -> bool {
    DEBIAN.iter().any(|one| one.version == name) || Path::new(name).is_file()
}

impl Kernel {
    /// One of Debian's by its version, downloaded if it is not here yet, or an image by its path: modules are in lib/modules beside its
    /// directory, or in this machine's.
    pub fn get(name: &str) -> Result<Self> {
        match DEBIAN.iter().find(|one| one.version == name) {
            Some(debian) => debian.get(),
            None => Self::at(Path::new(name)),
        }
    }

    fn at(image: &Path) -> Result<Self> {
        let image = image.canonicalize().with_context(|| format!("cannot find {}", image.display()))?;
        let name = image.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let release = name.split_once('-').map(|(_, release)| release.to_owned());
        let release =
            release.with_context(|| format!("{name} does not say its release, as vmlinuz-6.1.0-50-amd64 does"))?;
        let above = image.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
        let places = [above.join("lib/modules"), above.join("usr/lib/modules"), PathBuf::from("/lib/modules")];
        let modules = places.into_iter().find(|place| place.join(&release).is_dir());
        let modules = modules.with_context(|| format!("there are no modules of {release} in {}", above.display()))?;
        if !modules.join(&release).join("modules.dep").exists() {
            let mut depmod = Command::new("/sbin/depmod");
            if !run(depmod.arg("-b").arg(modules_root(&modules)).arg(&release))?.success() {
                bail!("depmod fails for {release}");
            }
        }
        Ok(Self { release, image, modules })
    }
}

impl DebianKernel {
    fn get(&self) -> Result<Kernel> {
        let root = cache()?.join(self.suite);
        if let Some(image) = image_in(&root.join("boot")) {
            return Kernel::at(&image);
        }
        let scratch = root.with_extension("part");
        if scratch.exists() {
            fs::remove_dir_all(&scratch)?;
        }
        fs::create_dir_all(scratch.join("lists/partial"))?;
        fs::create_dir_all(scratch.join("cache/archives/partial"))?;
        self.unpack(&scratch).with_context(|| format!("cannot get Debian's Linux {}", self.version))?;
        // What is in place is whole.
        fs::rename(scratch.join("root"), &root)?;
        fs::remove_dir_all(&scratch)?;
        let image = image_in(&root.join("boot"));
        Kernel::at(&image.with_context(|| format!("the package for Linux {} has no image", self.version))?)
    }

    /// Downloads the newest package of the suite, with lists of packages of its own, and unpacks it into `scratch`.
    fn unpack(&self, scratch: &Path) -> Result<()> {
        if !works(Command::new("apt-get").arg("--version")) {
            bail!("apt-get is not here to download it: name an image by its path");
        }
        let site = debian_site()?;
        let mut sources = format!("deb {site} {} main\n", self.suite);
        if let Some((folder, suite)) = self.more {
            let base = site.strip_suffix("debian").unwrap_or(&site);
            sources += &format!("deb {base}{folder} {suite} main\n");
        }
        let list = scratch.join("sources.list");
        fs::write(&list, sources)?;
        let option = |name: &str, path: &Path| format!("{name}={}", path.display());
        let settings = [
            option("Dir::Etc::SourceList", &list),
            option("Dir::Etc::SourceParts", Path::new("/dev/null")),
            option("Dir::State::Lists", &scratch.join("lists")),
            option("Dir::Cache", &scratch.join("cache")),
            // apt's own user cannot write here.
            "APT::Sandbox::User=root".to_owned(),
        ];
        let apt = |program: &str| {
            let mut command = Command::new(program);
            command.current_dir(scratch).args(settings.iter().flat_map(|setting| ["-o", setting]));
            command
        };
        let succeed = |command: &mut Command| match run(command)?.success() {
            true => Ok(()),
            false => bail!("{} has failed", command.get_program().to_string_lossy()),
        };
        succeed(apt("apt-get").args(["update", "-q"]))?;
        let output =
            apt("apt-cache").args(["depends", "linux-image-amd64"]).output().context("cannot start apt-cache")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let package = text.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
        let package = package.context("the archive has no package linux-image-amd64")?.to_owned();
        succeed(apt("apt-get").args(["download", "-q", &package]))?;
        let file = fs::read_dir(scratch)?.filter_map(|entry| Some(entry.ok()?.path()));
        let file = file.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "deb"));
        let file = file.with_context(|| format!("{package} was not downloaded"))?;
        let root = scratch.join("root");
        succeed(Command::new("dpkg-deb").arg("--extract").arg(&file).arg(&root))?;
        // Packages of newer suites have it under usr/ alone, where a merged system has a link to it.
        if !root.join("lib").exists() {
            std::os::unix::fs::symlink("usr/lib", root.join("lib"))?;
        }
        Ok(())
    }
}

/// The root of the file system that has the directory `modules`, as depmod(8) and modprobe(8) want it.
pub fn modules_root(modules: &Path) -> &Path {
    let lib = modules.parent().unwrap_or(modules);
    let above = lib.parent().unwrap_or(lib);
    if above.ends_with("usr") { above.parent().unwrap_or(above) } else { above }
}

fn image_in(boot: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(boot).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    entries.into_iter().find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz-")))
}

/// The archive that this machine's own packages come from, if it is Debian's.
fn debian_site() -> Result<String> {
    let output = Command::new("apt-get").args(["indextargets", "--format", "$(SITE)", "Label: Debian"]).output();
    let output = output.context("cannot start apt-get")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // Security updates have an archive of their own.
    let site = text.lines().map(|site| site.trim_end_matches('/')).find(|site| site.ends_with("/debian"));
    site.map(str::to_owned).context("apt has no archive of Debian here: name an image by its path")
}

//! libelf and zlib for musl, from the sources that libbpf-sys brings: no distribution has them for musl-gcc, and elfutils' own
//! build asks musl for what libelf does not use (argp, fts, obstack).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use cargo_metadata::MetadataCommand;

use crate::command::root;

/// Where the archives and the headers are.
pub struct Libraries {
    pub archives: PathBuf,
    pub flags: String,
}

/// What elfutils' configure would find out of musl.
const CONFIGURATION: &str = "\
#define PACKAGE_NAME \"elfutils\"
#define PACKAGE_VERSION \"0.191\"
#define HAVE_ERR_H 1
#define HAVE_DECL_MEMPCPY 1
#define HAVE_DECL_MEMRCHR 1
#define HAVE_DECL_POWEROF2 1
#define HAVE_DECL_RAWMEMCHR 0
#define HAVE_DECL_REALLOCARRAY 1
#define HAVE_VISIBILITY 1
#define CHECK_UNDEF 1
#include <eu-config.h>
";

/// Compiles both into `directory` with `compiler`.
pub fn build(compiler: &Path, directory: &Path) -> Result<Libraries> {
    let sources = sources()?;
    let (elf, eu, zlib) = (sources.join("elfutils/libelf"), sources.join("elfutils/lib"), sources.join("zlib"));
    let archives = directory.join("lib");
    fs::create_dir_all(&archives).with_context(|| format!("make {}", archives.display()))?;
    fs::write(directory.join("config.h"), CONFIGURATION).context("write config.h")?;
    let flag = |path: &Path| format!("-I{}", path.display());
    let remap = format!("-ffile-prefix-map={}=libbpf-sys", sources.display());
    let of_elf =
        ["-std=gnu99", "-D_GNU_SOURCE", "-DHAVE_CONFIG_H", &flag(directory), &flag(&eu), &flag(&elf), &flag(&zlib)];
    archive(compiler, &elf, &[&of_elf[..], &[&remap]].concat(), directory, &archives.join("libelf.a"))?;
    let of_zlib = ["-DHAVE_UNISTD_H", "-DHAVE_STDARG_H", &remap];
    archive(compiler, &zlib, &of_zlib, directory, &archives.join("libz.a"))?;
    Ok(Libraries { archives, flags: format!("{} {} {remap}", flag(&elf), flag(&zlib)) })
}

/// The folder of libbpf-sys in cargo's cache.
pub fn sources() -> Result<PathBuf> {
    let metadata =
        MetadataCommand::new().manifest_path(root().join("Cargo.toml")).exec().context("ask cargo for libbpf-sys")?;
    let package = metadata.packages.iter().find(|package| package.name.as_str() == "libbpf-sys");
    let manifest = &package.context("libbpf-sys is no dependency")?.manifest_path;
    Ok(manifest.parent().context("libbpf-sys has no folder")?.into())
}

/// An archive of all C files of a folder, the same for the same sources.
fn archive(compiler: &Path, sources: &Path, flags: &[&str], directory: &Path, archive: &Path) -> Result<()> {
    let name = archive.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let objects = directory.join(name);
    fs::create_dir_all(&objects).with_context(|| format!("make {}", objects.display()))?;
    let mut files: Vec<PathBuf> = fs::read_dir(sources)
        .with_context(|| format!("read {}", sources.display()))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .collect();
    files.sort();
    let mut made = Vec::new();
    for file in &files {
        let object = objects.join(file.with_extension("o").file_name().unwrap_or_default());
        let mut compile = Command::new(compiler);
        compile.args(["-O2", "-fPIC", "-w"]).args(flags).arg("-c").arg(file).arg("-o").arg(&object);
        if !compile.status().with_context(|| format!("cannot start {}", compiler.display()))?.success() {
            bail!("{} does not compile: see above", file.display());
        }
        made.push(object);
    }
    let _ = fs::remove_file(archive);
    let status = Command::new("ar").arg("rcsD").arg(archive).args(&made).status().context("cannot start ar")?;
    if !status.success() {
        bail!("ar makes no {}", archive.display());
    }
    Ok(())
}

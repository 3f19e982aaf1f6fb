//! Where a report goes: standard output, or a file that is found good before any work is done.

use std::fmt::Display;
use std::fs::{self, Permissions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_cli::look;
use rig_cli::streams::done_or_closed;
use rig_report::document::Document;
use rig_report::{Format, Options};

/// Columns of a terminal report that does not go to a terminal.
const FILE_WIDTH: u16 = 80;

/// A destination for one report.
pub(super) enum Output {
    Standard,
    /// A file that appears whole: until then an older one stays.
    File(PathBuf),
    /// A device or a pipe, which a file must not replace.
    Device(fs::File, PathBuf),
}

impl Output {
    /// The destination that the user named.
    pub fn choose(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Self::Standard) };
        let refuse = |why: &dyn Display| {
            let next = "name a file in a directory that you may write to";
            Failure::new(Exit::BadInput, anyhow!("cannot write {}: {why}: {next}", path.display()))
        };
        // What a link points to becomes the report, not the link.
        let path = match fs::canonicalize(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
            path => path.map_err(|error| refuse(&error))?,
        };
        if path.is_dir() {
            return Err(refuse(&"it is a directory"));
        }
        if path.exists() && !path.is_file() {
            let device = fs::File::options().write(true).open(&path).map_err(|error| refuse(&error))?;
            return Ok(Self::Device(device, path));
        }
        // A file without a name: it is gone with the process, also when that is killed.
        tempfile::tempfile_in(directory_of(&path)).map_err(|error| refuse(&error))?;
        Ok(Self::File(path))
    }

    pub fn is_standard(&self) -> bool {
        matches!(self, Self::Standard)
    }

    /// Writes the report.
    pub fn write(self, document: &Document, format: Format) -> Result<(), Failure> {
        self.fill(|look, out| {
            if format != Format::Terminal {
                return rig_report::write(document, format, look, out);
            }
            let mut text = Vec::new();
            rig_report::write(document, format, look, &mut text)?;
            out.write_all(look::shown(&String::from_utf8_lossy(&text)).as_bytes())
        })
    }

    /// Has `write` write, in the look of the place.
    pub fn fill(self, write: impl FnOnce(Options, &mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
        let look = Options { colour: false, width: FILE_WIDTH };
        let (written, path) = match self {
            Self::Standard => return to_standard_output(write),
            Self::Device(mut device, path) => (write(look, &mut device), path),
            Self::File(path) => {
                let mut text = Vec::new();
                let written = write(look, &mut text);
                (written.and_then(|()| replace(&path, &text)), path)
            }
        };
        written.with_context(|| format!("write {}", path.display())).or_exit(Exit::Failed)
    }
}

fn to_standard_output(write: impl FnOnce(Options, &mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
    let terminal = io::stdout().is_terminal();
    let colour = look::colour();
    let width = rig_sys::process::terminal_width().filter(|_| terminal).unwrap_or(FILE_WIDTH);
    let mut out = io::stdout().lock();
    let look = Options { colour, width };
    done_or_closed(write(look, &mut out).and_then(|()| out.flush()))
}

/// Puts a whole file in place of an older one at once.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    // tempfile makes files private; a report is as readable as any other file.
    let mut file = tempfile::Builder::new()
        .prefix(".netrig-")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(directory_of(path))?;
    file.write_all(text)?;
    file.persist(path).map(drop).map_err(|error| error.error)
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

//! The terminal: keys in, lines out.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use netrig_spread::settings::{SchedulingMode, SettingChanges};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_cli::streams::print_on;
use rig_spread::Mode;
use rustix::process::{Signal, getpid, kill_process};

use crate::between::between;
use crate::draw::compose;
use crate::history::History;
use crate::reading::Reading;
use crate::source::Source;
use crate::theme::Theme;
use crate::view::{View, ViewState, choices};

/// Intervals that can be asked for.
pub const SHORTEST: Duration = Duration::from_millis(100);
pub const LONGEST: Duration = Duration::from_secs(60);
/// What + and - go through.
const STEPS_MS: [u64; 9] = [100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000];
/// So soon is a signal seen.
const GLANCE: Duration = Duration::from_millis(250);

/// Shows samples until the user has enough.
///
/// # Errors
/// Where standard output is no terminal, or the source has nothing more to tell.
pub fn show(source: Source, interval: Duration, count: Option<u64>) -> Result<Exit, Failure> {
    if !io::stdout().is_terminal() {
        let error = anyhow!("standard output is not a terminal, which `netrig top` draws on");
        return Err(Failure::new(Exit::BadInput, error).with_next("`netrig top --json` prints a sample"));
    }
    let theme = Theme::of_environment();
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    let caught = rig_sys::signal::on_stop_signal(move || {
        told.store(true, Ordering::Relaxed);
        // Asking a terminal that has gone for keys does not come back (crossterm reads its end again and again).
        std::thread::sleep(Duration::from_secs(1));
        ratatui::restore();
        std::process::exit(Exit::Stopped as i32);
    });
    caught.context("catch signals").or_exit(Exit::Failed)?;
    let mut top = Top::new(source, interval, count, theme, stop)?;
    if theme.plain {
        return top.print();
    }
    if !io::stdin().is_terminal() {
        let error = anyhow!("standard input is not a terminal, which `netrig top` takes keys from");
        return Err(Failure::new(Exit::BadInput, error).with_next("`netrig top --json` prints a sample"));
    }
    // It puts the terminal back when the program panics, too.
    let mut terminal = TerminalGuard(ratatui::try_init().context("take the terminal").or_exit(Exit::Failed)?);
    top.draw(&mut terminal)
}

/// A terminal that is as it was when this goes.
struct TerminalGuard(DefaultTerminal);

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

struct Top {
    source: Source,
    before: Reading,
    history: History,
    /// What is shown instead, while it is.
    frozen: Option<History>,
    chosen: ViewState,
    next: Instant,
    /// Samples that are still to be shown.
    left: Option<u64>,
    theme: Theme,
    stop: Arc<AtomicBool>,
}

impl Top {
    fn new(
        mut source: Source,
        interval: Duration,
        left: Option<u64>,
        theme: Theme,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, Failure> {
        let before = source.read()?;
        let chosen = ViewState { interval, ..ViewState::default() };
        let next = Instant::now() + interval;
        Ok(Self { source, before, history: History::default(), frozen: None, chosen, next, left, theme, stop })
    }

    fn sample(&mut self) -> Result<(), Failure> {
        let now = self.source.read()?;
        self.history.push(between(&self.before, &now));
        self.before = now;
        self.left = self.left.map(|left| left.saturating_sub(1));
        // Samples that a delay has skipped are not made up for.
        self.next = (self.next + self.chosen.interval).max(Instant::now());
        Ok(())
    }

    fn shown(&self) -> &History {
        self.frozen.as_ref().unwrap_or(&self.history)
    }

    fn view(&mut self) -> View {
        let most = self.shown().last().map_or(0, choices).saturating_sub(1);
        self.chosen.index = self.chosen.index.min(most);
        self.chosen.frozen = self.frozen.is_some();
        View::of(self.shown(), &self.chosen)
    }

    /// One picture after the other, as lines, without keys.
    fn print(&mut self) -> Result<Exit, Failure> {
        loop {
            while Instant::now() < self.next {
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(Exit::Done);
                }
                std::thread::sleep(GLANCE.min(self.next.saturating_duration_since(Instant::now())));
            }
            self.sample()?;
            let view = View { keys: Vec::new(), ..self.view() };
            let lines = compose(&view, self.theme, rig_cli::streams::width() as u16, u16::MAX);
            let mut text: String = lines.iter().map(|line| format!("{}\n", line.to_string().trim_end())).collect();
            while text.ends_with("\n\n") {
                text.pop();
            }
            text.push('\n');
            if !print_on(&text)? || self.left == Some(0) {
                return Ok(Exit::Done);
            }
        }
    }

    fn draw(&mut self, terminal: &mut TerminalGuard) -> Result<Exit, Failure> {
        loop {
            let (view, theme) = (self.view(), self.theme);
            let drawn = terminal.0.draw(|frame| {
                let area = frame.area();
                let lines = compose(&view, theme, area.width, area.height);
                for (line, y) in lines.iter().zip(area.top()..area.bottom()) {
                    frame.buffer_mut().set_line(area.left(), y, line, area.width);
                }
            });
            drawn.context("draw").or_exit(Exit::Failed)?;
            if self.left == Some(0) {
                return Ok(Exit::Done);
            }
            // Until there is something new to draw.
            loop {
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(Exit::Done);
                }
                let time_limit = self.next.saturating_duration_since(Instant::now());
                if time_limit.is_zero() {
                    self.sample()?;
                    if self.frozen.is_none() {
                        break;
                    }
                    continue;
                }
                match self.event(time_limit.min(GLANCE))? {
                    Some(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                        if self.key(key, terminal)? {
                            return Ok(Exit::Done);
                        }
                        break;
                    }
                    Some(Event::Resize(..)) => break,
                    None | Some(_) => {}
                }
            }
        }
    }

    fn event(&self, time_limit: Duration) -> Result<Option<Event>, Failure> {
        let read = match event::poll(time_limit) {
            Ok(true) => event::read().map(Some),
            Ok(false) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            Err(error) => Err(error),
        };
        // A terminal that has gone, as a hang-up tells a moment later.
        read.context("read keys").or_exit(Exit::Failed)
    }

    /// Whether it is the end.
    fn key(&mut self, key: KeyEvent, terminal: &mut TerminalGuard) -> Result<bool, Failure> {
        self.chosen.message = None;
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let page = 10;
        match key.code {
            KeyCode::Char('c') if control => return Ok(true),
            KeyCode::Char('z') if control => self.suspend(terminal)?,
            _ if control => {}
            KeyCode::Char('q') | KeyCode::Esc => return Ok(true),
            KeyCode::Char('f' | ' ') => {
                self.frozen = if self.frozen.is_some() { None } else { Some(self.history.clone()) };
            }
            KeyCode::Tab | KeyCode::Right => self.choose(1),
            KeyCode::BackTab | KeyCode::Left => self.choose(-1),
            KeyCode::Up => self.chosen.scroll = self.chosen.scroll.saturating_sub(1),
            KeyCode::Down => self.chosen.scroll += 1,
            KeyCode::PageUp => self.chosen.scroll = self.chosen.scroll.saturating_sub(page),
            KeyCode::PageDown => self.chosen.scroll += page,
            KeyCode::Home => self.chosen.scroll = 0,
            KeyCode::Char('+' | '=') => {
                self.pace(STEPS_MS.into_iter().find(|step| Duration::from_millis(*step) > self.chosen.interval));
            }
            KeyCode::Char('-') => {
                self.pace(STEPS_MS.into_iter().rev().find(|step| Duration::from_millis(*step) < self.chosen.interval));
            }
            KeyCode::Char('?' | 'h') => {
                self.chosen.help = !self.chosen.help;
                self.chosen.scroll = 0;
            }
            KeyCode::Char('m') => self.chosen.message = Some(self.next_mode()),
            _ => {}
        }
        // Further down than there are rows is no place.
        let longest = self.view().tables.iter().map(|table| table.rows.len()).max().unwrap_or(0).max(40);
        self.chosen.scroll = self.chosen.scroll.min(longest);
        Ok(false)
    }

    fn choose(&mut self, step: isize) {
        let count = self.shown().last().map_or(0, choices);
        if count > 0 {
            self.chosen.index = (self.chosen.index as isize + step).rem_euclid(count as isize) as usize;
            self.chosen.scroll = 0;
        }
    }

    fn pace(&mut self, step: Option<u64>) {
        if let Some(ms) = step {
            self.chosen.interval = Duration::from_millis(ms);
            self.next = Instant::now() + self.chosen.interval;
        }
    }

    /// Asks the spreader for the mode after the one that was asked for; what it says.
    fn next_mode(&self) -> String {
        let interface = self.history.last().and_then(|sample| sample.interfaces.get(self.chosen.index));
        let Some((interface, spread)) = interface.and_then(|one| Some((one, one.spread.as_ref()?))) else {
            return "no spreader has taken this interface: nothing has a mode here".to_owned();
        };
        let at = Mode::ALL.iter().position(|mode| *mode == spread.mode_requested).unwrap_or(0);
        let mode = Mode::ALL[(at + 1) % Mode::ALL.len()];
        let changes = SettingChanges { mode: Some(SchedulingMode(mode)), ..SettingChanges::default() };
        match netrig_spread::client::set(&interface.name, changes) {
            Ok(said) => format!("asked for {mode}; {}", said.join("; ")),
            Err(error) => format!("asked for {mode}, which was refused: {error}"),
        }
    }

    /// To the shell, as Ctrl-Z does elsewhere, and back.
    fn suspend(&mut self, terminal: &mut TerminalGuard) -> Result<(), Failure> {
        ratatui::restore();
        kill_process(getpid(), Signal::TSTP).context("stop for the shell").or_exit(Exit::Failed)?;
        terminal.0 = ratatui::try_init().context("take the terminal again").or_exit(Exit::Failed)?;
        // What happened meanwhile is no interval.
        self.before = self.source.read()?;
        self.next = Instant::now() + self.chosen.interval;
        Ok(())
    }
}

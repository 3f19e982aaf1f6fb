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

use crate::draw::{block, compose};
use crate::feed::{Feed, Pane, outcome};
use crate::theme::Theme;
use crate::view::{View, ViewState, choices};

/// Intervals that can be asked for.
pub const SHORTEST: Duration = Duration::from_millis(100);
pub const LONGEST: Duration = Duration::from_secs(60);
/// What + and - go through.
const STEPS_MS: [u64; 9] = [100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000];
/// So soon is a signal seen.
const GLANCE: Duration = Duration::from_millis(250);

/// Shows samples until the user has enough, or until so many have come: on a terminal as a screen, elsewhere as lines.
///
/// # Errors
/// Where standard input is no terminal, or the source has nothing more to tell.
pub(crate) fn show(feed: Feed, interval: Duration, count: Option<u64>) -> Result<Exit, Failure> {
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
    let panes = feed.panes();
    let chosen = ViewState { interval, ..ViewState::default() };
    let mut top = Top { feed, panes, focus: 0, chosen, theme, stop };
    if theme.plain || !io::stdout().is_terminal() {
        return top.print(count == Some(1));
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
    feed: Feed,
    /// One for each machine.
    panes: Vec<Pane>,
    /// The pane whose interface is chosen by keys.
    focus: usize,
    chosen: ViewState,
    theme: Theme,
    stop: Arc<AtomicBool>,
}

impl Top {
    fn is_frozen(&self) -> bool {
        self.panes.iter().any(|pane| pane.frozen.is_some())
    }

    /// Of each machine.
    fn views(&mut self) -> Vec<View> {
        let frozen = self.is_frozen();
        for pane in &mut self.panes {
            let most = pane.shown().last().map_or(0, choices).saturating_sub(1);
            pane.index = pane.index.min(most);
        }
        let chosen = |pane: &Pane| ViewState { index: pane.index, frozen, ..self.chosen.clone() };
        self.panes.iter().map(|pane| View::of_pane(pane, &chosen(pane))).collect()
    }

    fn is_over(&self) -> bool {
        self.panes.iter().all(|pane| pane.ended.is_some())
    }

    /// Of one that was not ended by its user.
    fn outcome(&self) -> Result<Exit, Failure> {
        let ended = self
            .panes
            .iter()
            .filter_map(|Pane { name, ended, .. }| Some((name.as_deref().unwrap_or_default(), ended.as_ref()?)));
        outcome(ended)
    }

    /// Samples as lines, without keys, and that a machine is lost: machines in the order of their names on the command line,
    /// for which one that has come waits half an interval, or as long as it takes where each machine has only `one` to come.
    fn print(&mut self, one: bool) -> Result<Exit, Failure> {
        let mut lost = vec![false; self.panes.len()];
        while !self.is_over() {
            let mut first = None;
            let news = loop {
                let half = self.chosen.interval / 2;
                let left = first.map_or(GLANCE, |first: Instant| half.saturating_sub(first.elapsed()));
                let is_last_look = self.stop.load(Ordering::Relaxed);
                self.feed.take(&mut self.panes, self.chosen.interval, if one { GLANCE } else { left.min(GLANCE) })?;
                let is_news = |(pane, lost): (&Pane, &bool)| pane.is_fresh || (pane.is_lost() && !lost);
                let news: Vec<bool> = self.panes.iter().zip(&lost).map(is_news).collect();
                if news.contains(&true) {
                    first = first.or_else(|| Some(Instant::now()));
                }
                let have_all = self.panes.iter().all(|pane| pane.is_fresh || pane.ended.is_some());
                let waited = !one && first.is_some_and(|first| first.elapsed() >= half);
                if have_all || waited || is_last_look {
                    break news;
                }
            };
            lost = self.panes.iter().map(Pane::is_lost).collect();
            let width = rig_cli::streams::width() as u16;
            let mut text = String::new();
            let views = self.views();
            for (view, _) in views.iter().zip(&news).filter(|(_, is_news)| **is_news) {
                let lines = block(view, self.theme, width, u16::MAX);
                text.extend(lines.iter().map(|line| format!("{}\n", line.to_string().trim_end())));
                text.push('\n');
            }
            self.panes.iter_mut().for_each(|pane| pane.is_fresh = false);
            if !print_on(&text)? || self.stop.load(Ordering::Relaxed) {
                return Ok(Exit::Done);
            }
        }
        self.outcome()
    }

    fn draw(&mut self, terminal: &mut TerminalGuard) -> Result<Exit, Failure> {
        loop {
            let (views, theme) = (self.views(), self.theme);
            let drawn = terminal.0.draw(|frame| {
                let area = frame.area();
                let lines = compose(&views, theme, area.width, area.height);
                for (line, y) in lines.iter().zip(area.top()..area.bottom()) {
                    frame.buffer_mut().set_line(area.left(), y, line, area.width);
                }
            });
            drawn.context("draw").or_exit(Exit::Failed)?;
            if self.is_over() {
                return self.outcome();
            }
            // Until there is something new to draw.
            let mut silent = self.silent();
            loop {
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(Exit::Done);
                }
                let came = self.feed.take(&mut self.panes, self.chosen.interval, Duration::ZERO)?;
                let falls_silent = std::mem::replace(&mut silent, self.silent()) != silent;
                // A machine that is lost is told over a frozen picture, too.
                if (came && !self.is_frozen()) || falls_silent || self.is_over() {
                    break;
                }
                match self.event(self.feed.rest().min(GLANCE))? {
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

    /// For how many seconds each host has said nothing, where it should have, and whether it is lost.
    fn silent(&self) -> Vec<(Option<u64>, bool)> {
        let silent =
            |pane: &Pane| (pane.silence(self.chosen.interval).map(|silence| silence.as_secs()), pane.is_lost());
        self.panes.iter().map(silent).collect()
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
                let freezes = !self.is_frozen();
                for pane in &mut self.panes {
                    pane.frozen = freezes.then(|| pane.history.clone());
                }
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
        let views = self.views();
        let tables = views.iter().flat_map(|view| &view.tables);
        let longest = tables.map(|table| table.rows.len()).max().unwrap_or(0).max(40);
        self.chosen.scroll = self.chosen.scroll.min(longest);
        Ok(false)
    }

    /// The next or the one before, of all machines' one after the other.
    fn choose(&mut self, step: isize) {
        let count = |pane: &Pane| pane.shown().last().filter(|_| !pane.is_lost()).map_or(0, choices);
        let counts: Vec<usize> = self.panes.iter().map(count).collect();
        let all: Vec<(usize, usize)> =
            counts.iter().enumerate().flat_map(|(pane, count)| (0..*count).map(move |index| (pane, index))).collect();
        let now = (self.focus, self.panes.get(self.focus).map_or(0, |pane| pane.index));
        let at = all.iter().position(|one| *one == now).unwrap_or(0);
        if let Some((pane, index)) = all.get((at as isize + step).rem_euclid(all.len().max(1) as isize) as usize) {
            self.focus = *pane;
            self.panes[*pane].index = *index;
            self.chosen.scroll = 0;
        }
    }

    fn pace(&mut self, step: Option<u64>) {
        match (step, &mut self.feed) {
            (Some(ms), Feed::Local(here)) => {
                self.chosen.interval = Duration::from_millis(ms);
                here.pace(self.chosen.interval);
            }
            (Some(_), Feed::Hosts(_)) => {
                self.chosen.message = Some("hosts keep the interval that they began with: --interval".to_owned());
            }
            (None, _) => {}
        }
    }

    /// Asks the spreader for the mode after the one that was asked for; what it says.
    fn next_mode(&self) -> String {
        let [Pane { name: None, history, index, .. }] = &self.panes[..] else {
            return "modes are switched on the machine itself: netrig spread set".to_owned();
        };
        let interface = history.last().and_then(|sample| sample.interfaces.get(*index));
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
        if let Feed::Local(here) = &mut self.feed {
            here.begin_anew(self.chosen.interval)?;
        }
        Ok(())
    }
}

//! Hosts that are reached side by side. One dies with the thread that reached it, so these threads stay as long as the hosts are used.

use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Result, anyhow};

/// Hosts that are being reached at a time.
pub const AT_ONCE: usize = 16;

/// Does the work for each, of which [`AT_ONCE`] are begun at a time, in their order, and hands on what came of each, in the same order. The
/// threads that did it stay until `then` has ended.
pub fn side_by_side<A: Send, T: Send, R>(
    asked: impl ExactSizeIterator<Item = A> + Send,
    work: impl Fn(A) -> Result<T> + Sync,
    then: impl FnOnce(Vec<Result<T>>) -> R,
) -> R {
    let count = asked.len();
    let (to_outcomes, outcomes): (Vec<_>, Vec<_>) = (0..count).map(|_| mpsc::channel::<Result<T>>()).unzip();
    let waiting = Mutex::new(asked.zip(to_outcomes));
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
    let lost = || Err(anyhow!("what reaches it has panicked"));
    thread::scope(|scope| {
        let begin = |_| {
            let (stay, until_dropped) = mpsc::channel::<()>();
            let (next, work) = (&next, &work);
            scope.spawn(move || {
                while let Some((one, outcome)) = next() {
                    // The receiver is there until all have come.
                    let _ =
                        outcome.send(panic::catch_unwind(AssertUnwindSafe(|| work(one))).unwrap_or_else(|_| lost()));
                }
                let _ = until_dropped.recv();
            });
            stay
        };
        let threads: Vec<Sender<()>> = (0..count.min(AT_ONCE)).map(begin).collect();
        let all = outcomes.iter().map(|outcome| outcome.recv().unwrap_or_else(|_| lost())).collect();
        let result = then(all);
        drop(threads);
        result
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Condvar;
    use std::time::Duration;

    use super::*;

    /// The first is done once all others are: one after the other they would wait for ever.
    #[test]
    fn what_hangs_holds_up_no_other_and_all_are_handed_on_in_order() {
        const COUNT: usize = 2 * AT_ONCE + 5;
        #[derive(Default)]
        struct WorkState {
            begun: Vec<usize>,
            done: usize,
            at_once: usize,
        }
        let (seen, changed) = (Mutex::new(WorkState::default()), Condvar::new());
        let asked = (0..COUNT).inspect(|one| seen.lock().unwrap().begun.push(*one));
        let work = |one: usize| {
            let mut seen = seen.lock().unwrap();
            let under_way = seen.begun.len() - seen.done;
            seen.at_once = seen.at_once.max(under_way);
            if one == 0 {
                let hangs = |seen: &mut WorkState| seen.done < COUNT - 1;
                let (back, waited) = changed.wait_timeout_while(seen, Duration::from_secs(60), hangs).unwrap();
                if waited.timed_out() {
                    return Err(anyhow!("the others wait for it"));
                }
                seen = back;
            }
            seen.done += 1;
            changed.notify_all();
            if one == 3 { Err(anyhow!("refused")) } else { Ok(one) }
        };
        let told = side_by_side(asked, work, |all| {
            all.into_iter().map(|one| one.map_err(|error| error.to_string())).collect::<Vec<_>>()
        });
        let expected: Vec<_> =
            (0..COUNT).map(|one| if one == 3 { Err("refused".to_owned()) } else { Ok(one) }).collect();
        assert_eq!(told, expected);
        let WorkState { begun, at_once, .. } = seen.into_inner().unwrap();
        assert_eq!(begun, (0..COUNT).collect::<Vec<_>>());
        assert!(at_once <= AT_ONCE, "{at_once} at a time");
    }

    #[test]
    fn threads_stay_until_what_they_reached_is_used() {
        thread_local!(static OF_THREAD: std::cell::RefCell<Option<Sender<()>>> = const { std::cell::RefCell::new(None) });
        let (alive, ended) = mpsc::channel();
        let alive = Mutex::new(alive);
        let work = |()| {
            // Dropped with the thread.
            OF_THREAD.with(|own| *own.borrow_mut() = Some(alive.lock().unwrap().clone()));
            Ok(())
        };
        side_by_side([(), (), ()].into_iter(), work, |all| {
            drop(std::mem::replace(&mut *alive.lock().unwrap(), mpsc::channel().0));
            assert_eq!(all.len(), 3);
            assert_eq!(ended.try_recv(), Err(mpsc::TryRecvError::Empty), "no thread has ended");
        });
        // A scope may end before the values of its threads are dropped.
        assert_eq!(ended.recv_timeout(Duration::from_secs(60)), Err(mpsc::RecvTimeoutError::Disconnected));
        assert_eq!(side_by_side(std::iter::empty(), |()| Ok(()), |all| all.len()), 0);
    }
}

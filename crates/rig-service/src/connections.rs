//! Connections of clients: a thread for each, up to a number of them at a time.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// After a connection could not be accepted, as when there are no file descriptors left: the next attempt would fail at once, too.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Connections {
    /// What its threads are called.
    name: &'static str,
    most: usize,
    /// Held by each thread, and by this one.
    open: Arc<()>,
}

impl Connections {
    pub(crate) fn new(name: &'static str, most: usize) -> Self {
        Self { name, most, open: Arc::default() }
    }

    fn count(&self) -> usize {
        Arc::strong_count(&self.open) - 1
    }

    /// Has each connection answered by `answer`. One too many is closed.
    pub(crate) fn serve<T: Send + 'static, E>(
        &self,
        incoming: impl Iterator<Item = Result<T, E>>,
        answer: impl Fn(T) + Clone + Send + 'static,
    ) {
        for connection in incoming {
            let Ok(connection) = connection else {
                thread::sleep(PAUSE);
                continue;
            };
            if self.count() >= self.most {
                continue;
            }
            let (open, answer) = (Arc::clone(&self.open), answer.clone());
            let body = move || {
                answer(connection);
                drop(open);
            };
            let _unanswered = thread::Builder::new().name(self.name.into()).spawn(body);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn one_too_many_is_left() {
        let (answered, seen) = channel();
        let (end, ends) = channel::<()>();
        let ends = Arc::new(std::sync::Mutex::new(ends));
        let connections = Connections::new("test", 2);
        connections.serve([Ok(1), Err(()), Ok(2), Ok(3)].into_iter(), move |connection| {
            let _heard = answered.send(connection);
            // Until the test ends it.
            drop(ends.lock().map(|ends| ends.recv()));
        });
        assert_eq!(connections.count(), 2);
        let mut here: Vec<i32> = seen.iter().take(2).collect();
        here.sort_unstable();
        assert_eq!(here, [1, 2]);
        drop(end);
        // All threads have ended, and the third was never answered.
        assert_eq!(seen.iter().count(), 0);
    }
}

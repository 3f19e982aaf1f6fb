//! Those who ask: a thread for each, up to a number of them at a time.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// After an attempt to take somebody in has failed, as it does when there are no file descriptors left: the next would
/// fail at once, too.
const REST: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub struct Crowd {
    /// What its threads are called.
    name: &'static str,
    most: usize,
    /// Held by each thread, and by this one.
    here: Arc<()>,
}

impl Crowd {
    pub fn new(name: &'static str, most: usize) -> Self {
        Self { name, most, here: Arc::default() }
    }

    /// How many are being answered.
    pub fn count(&self) -> usize {
        Arc::strong_count(&self.here) - 1
    }

    /// Has each that comes answered by `answer`. Whoever is one too many is left, which ends the connection.
    pub fn welcome<T: Send + 'static, E>(
        &self,
        comers: impl Iterator<Item = Result<T, E>>,
        answer: impl Fn(T) + Clone + Send + 'static,
    ) {
        for comer in comers {
            let Ok(comer) = comer else {
                thread::sleep(REST);
                continue;
            };
            if self.count() >= self.most {
                continue;
            }
            let (here, answer) = (Arc::clone(&self.here), answer.clone());
            let body = move || {
                answer(comer);
                drop(here);
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
        let crowd = Crowd::new("test", 2);
        crowd.welcome([Ok(1), Err(()), Ok(2), Ok(3)].into_iter(), move |comer| {
            let _heard = answered.send(comer);
            // Until the test ends it.
            drop(ends.lock().map(|ends| ends.recv()));
        });
        assert_eq!(crowd.count(), 2);
        let mut here: Vec<i32> = seen.iter().take(2).collect();
        here.sort_unstable();
        assert_eq!(here, [1, 2]);
        drop(end);
        // All threads have ended, and the third was never answered.
        assert_eq!(seen.iter().count(), 0);
    }
}

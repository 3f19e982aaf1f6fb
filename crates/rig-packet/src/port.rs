//! Where frames come from and go to.

/// Frames to receive, in bursts.
pub trait Receive {
    /// Gives the frames of the last burst back and takes the next; returns how many there are, at once, even when there
    /// are none.
    fn poll(&mut self) -> usize;

    /// The frame `n` of the burst, below what [`poll`](Self::poll) returned.
    fn frame(&self, n: usize) -> &[u8];
}

/// Frames to send.
pub trait Transmit {
    /// The bytes of the next frame, `length` of them and of undefined content, for the caller to fill. It is sent, at
    /// the latest, by the next [`flush`](Self::flush). `None` when the queue is full.
    fn claim(&mut self, length: usize) -> Option<&mut [u8]>;

    /// Sends what was claimed.
    fn flush(&mut self);
}

/// One queue of an interface. The halves do not share anything, so a frame that was received can be read while its
/// answer is written.
pub trait Port {
    type Receive: Receive;
    type Transmit: Transmit;

    fn halves(&mut self) -> (&mut Self::Receive, &mut Self::Transmit);
}

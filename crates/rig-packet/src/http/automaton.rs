//! HTTP/1.1 messages (RFC 9112), read byte by byte with six bytes of memory: nothing is put aside, so a message may be
//! cut anywhere.

/// Every word that is looked for, each with a zero behind it. A state below [`END`] is a place in here: that of the byte
/// which must come next. Names of fields and their values are matched without regard to case.
const WORDS: &[u8] = b"\0GET \0HEAD \0POST \0HTTP/1.\0content-length:\0nection:\0transfer-encoding:\0chunked\0close\0\
    keep-alive\0";
const END: u8 = 128;

const fn word(word: &[u8]) -> u8 {
    let mut at = 0;
    while at + word.len() <= WORDS.len() {
        let mut n = 0;
        while n < word.len() && WORDS[at + n] == word[n] {
            n += 1;
        }
        if n == word.len() {
            return at as u8;
        }
        at += 1;
    }
    panic!("the word is not there")
}

const GET: u8 = word(b"GET ");
const HEAD: u8 = word(b"HEAD ");
const POST: u8 = word(b"POST ");
const VERSION: u8 = word(b"HTTP/1.");
const CONTENT_LENGTH: u8 = word(b"content-length:");
/// Where `connection` leaves `content-length`, and what it goes on with.
const CONTENT: u8 = CONTENT_LENGTH + 3;
const CONNECTION: u8 = word(b"nection:");
const TRANSFER_ENCODING: u8 = word(b"transfer-encoding:");
const CHUNKED: u8 = word(b"chunked");
const CLOSE: u8 = word(b"close");
const KEEP_ALIVE: u8 = word(b"keep-alive");
const GET_DONE: u8 = GET + 4;
const HEAD_DONE: u8 = HEAD + 5;
const POST_DONE: u8 = POST + 5;
const VERSION_DONE: u8 = VERSION + 7;
const CONTENT_LENGTH_DONE: u8 = CONTENT_LENGTH + 15;
const CONNECTION_DONE: u8 = CONNECTION + 8;
const TRANSFER_ENCODING_DONE: u8 = TRANSFER_ENCODING + 18;
const CHUNKED_DONE: u8 = CHUNKED + 7;
const CLOSE_DONE: u8 = CLOSE + 5;
const KEEP_ALIVE_DONE: u8 = KEEP_ALIVE + 10;
/// The words from here on are those of fields.
const FIELDS: u8 = CONTENT_LENGTH;

/// The states that are no places in words; each is named for what comes next.
mod at {
    /// Nothing has come yet.
    pub const START: u8 = 0;
    pub const TARGET: u8 = super::END;
    pub const TARGET_REST: u8 = TARGET + 1;
    pub const REQUEST_END: u8 = TARGET + 2;
    pub const STATUS_SPACE: u8 = TARGET + 3;
    pub const STATUS: u8 = TARGET + 4;
    /// The second and third digit; those of 204 and 304 apart, which have no body.
    pub const STATUS_SECOND: u8 = TARGET + 5;
    pub const STATUS_THIRD: u8 = TARGET + 6;
    pub const MAYBE_BARE_SECOND: u8 = TARGET + 7;
    pub const MAYBE_BARE_THIRD: u8 = TARGET + 8;
    pub const STATUS_END: u8 = TARGET + 9;
    /// What is left of a line, of no interest.
    pub const REST: u8 = TARGET + 10;
    /// The line feed behind a carriage return.
    pub const FEED: u8 = TARGET + 11;
    pub const FIELD: u8 = TARGET + 12;
    /// The line feed of the empty line.
    pub const LAST_FEED: u8 = TARGET + 13;
    /// What is left of a field's name.
    pub const NAME: u8 = TARGET + 14;
    pub const LENGTH: u8 = TARGET + 15;
    pub const LENGTH_DIGITS: u8 = TARGET + 16;
    pub const LENGTH_END: u8 = TARGET + 17;
    pub const CODING: u8 = TARGET + 18;
    pub const OTHER_CODING: u8 = TARGET + 19;
    pub const CHUNKED_END: u8 = TARGET + 20;
    pub const OPTION: u8 = TARGET + 21;
    pub const OTHER_OPTION: u8 = TARGET + 22;
    /// From here on the header is complete, and there is a body.
    pub const BODY: u8 = TARGET + 32;
    pub const BODY_UNTIL_CLOSE: u8 = TARGET + 33;
    pub const CHUNK_DATA: u8 = TARGET + 34;
    pub const CHUNK_DATA_END: u8 = TARGET + 35;
    pub const CHUNK_DATA_FEED: u8 = TARGET + 36;
    pub const CHUNK_SIZE: u8 = TARGET + 37;
    pub const CHUNK_DIGITS: u8 = TARGET + 38;
    pub const CHUNK_EXTENSION: u8 = TARGET + 39;
    pub const CHUNK_FEED: u8 = TARGET + 40;
    pub const TRAILER: u8 = TARGET + 41;
    pub const TRAILER_REST: u8 = TARGET + 42;
    pub const TRAILER_FEED: u8 = TARGET + 43;
    pub const DONE: u8 = TARGET + 44;
}

/// Bodies and chunks are no longer than a response can be here.
pub(crate) const LONGEST_BODY: u32 = 1 << 30;

/// The state of reading a message in the low half; above it what the header said, and how long it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Reading(u16);

/// No message of HTTP/1.1, or one that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InvalidMessage;

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Request,
    Response,
    /// To HEAD: without a body, even if the header gives a length.
    HeadResponse,
}

/// The message's end is its connection's, unless told otherwise.
const PERSISTENT: u16 = 1 << 8;
/// Of a request GET, of a response status 2XX.
const GET_OR_OK: u16 = 1 << 9;
/// Of a request POST, of a response status 1XX, which another one follows.
const POST_OR_INTERIM: u16 = 1 << 10;
/// Of a request HEAD, of a response status 204 or 304.
const BARE: u16 = 1 << 11;
/// How the body ends: by nothing that has been said, a length, chunks, or another coding than those.
const FRAMING: u16 = 3 << 12;
const LENGTH: u16 = 1 << 12;
const CHUNKS: u16 = 2 << 12;
const CODED: u16 = 3 << 12;
/// How many times a multiple of 2^14 in the sequence was passed within a header, or within the lines between chunks.
const PASSED: u16 = 3 << 14;
const ONE_PASSED: u16 = 1 << 14;
const PASS: u32 = 14;

impl Reading {
    #[inline]
    pub fn is_start(self) -> bool {
        self.0 & 0xff == 0
    }

    #[inline]
    pub fn is_done(self) -> bool {
        self.at() == at::DONE
    }

    /// Whether the header is not complete.
    #[inline]
    pub fn in_header(self) -> bool {
        self.at() < at::BODY
    }

    /// Whether the end of the connection ends the message.
    pub fn ends_by_close(self) -> bool {
        self.at() == at::BODY_UNTIL_CLOSE
    }

    /// Whether the connection goes on after this message.
    #[inline]
    pub fn persists(self) -> bool {
        self.0 & PERSISTENT != 0
    }

    #[inline]
    pub fn is_ok(self) -> bool {
        self.0 & GET_OR_OK != 0
    }

    #[inline]
    pub fn is_get(self) -> bool {
        self.0 & GET_OR_OK != 0
    }

    #[inline]
    pub fn is_post(self) -> bool {
        self.0 & POST_OR_INTERIM != 0
    }

    #[inline]
    pub fn is_head(self) -> bool {
        self.0 & BARE != 0
    }

    #[inline]
    fn at(self) -> u8 {
        self.0 as u8
    }

    #[inline]
    fn go(&mut self, at: u8) {
        self.0 = self.0 & 0xff00 | u16::from(at);
    }

    fn says(self, what: u16) -> bool {
        self.0 & what != 0
    }

    fn frame(&mut self, framing: u16) {
        self.0 = self.0 & !FRAMING | framing;
    }

    /// Reads on until the header is complete. The number of bytes that it took, or `None`: all, and there is more to
    /// come. `left` is the length that the header gives so far.
    pub fn header(
        &mut self,
        kind: Kind,
        left: &mut u32,
        sequence: u32,
        bytes: &[u8],
    ) -> Result<Option<usize>, InvalidMessage> {
        let mut n = 0;
        while let Some(&byte) = bytes.get(n) {
            if self.at() == at::REST {
                // Most bytes of most headers are passed over here.
                let Some(end) = bytes[n..].iter().position(|&byte| byte == b'\n' || byte == 0) else {
                    n = bytes.len();
                    break;
                };
                n += end;
                if bytes[n] == 0 {
                    return Err(InvalidMessage);
                }
                self.go(at::FIELD);
                n += 1;
                continue;
            }
            n += 1;
            if self.header_byte(kind, left, byte)? {
                self.header_end(kind, *left)?;
                return Ok(Some(n));
            }
        }
        self.pass(sequence, n)?;
        Ok(None)
    }

    /// Counts what came of a header that is not complete.
    fn pass(&mut self, sequence: u32, bytes: usize) -> Result<(), InvalidMessage> {
        let passed = (sequence.wrapping_add(bytes as u32) >> PASS).wrapping_sub(sequence >> PASS);
        if passed & (u32::MAX >> PASS) == 0 {
            return Ok(());
        }
        if self.0 & PASSED == PASSED {
            return Err(InvalidMessage);
        }
        self.0 += ONE_PASSED;
        Ok(())
    }

    /// Whether this byte completes the header.
    #[expect(clippy::match_same_arms, reason = "the arms stand in the order of a message")]
    fn header_byte(&mut self, kind: Kind, left: &mut u32, byte: u8) -> Result<bool, InvalidMessage> {
        let state = self.at();
        if state == at::START {
            return self.first_byte(kind, left, byte).map(|()| false);
        }
        if state < END {
            let wanted = WORDS[state as usize];
            let lower = if state < FIELDS { byte } else { byte.to_ascii_lowercase() };
            if lower == wanted && wanted != 0 {
                return self.matched(state + 1).map(|()| false);
            }
            return self.mismatched(state, byte).map(|()| false);
        }
        let digit = byte.is_ascii_digit();
        match (state, byte) {
            (at::TARGET, b'!'..=b'~' | 0x80..) => self.go(at::TARGET_REST),
            (at::TARGET_REST, b'!'..=b'~' | 0x80..) => {}
            (at::TARGET_REST, b' ') => self.go(VERSION),
            (at::REQUEST_END | at::STATUS_END, b'\r') => self.go(at::FEED),
            (at::REQUEST_END | at::STATUS_END | at::FEED, b'\n') => self.go(at::FIELD),
            (at::STATUS_SPACE, b' ') => self.go(at::STATUS),
            (at::STATUS, b'1'..=b'9') => {
                self.0 |= match byte {
                    b'1' => POST_OR_INTERIM,
                    b'2' => GET_OR_OK,
                    _ => 0,
                };
                self.go(if matches!(byte, b'2' | b'3') { at::MAYBE_BARE_SECOND } else { at::STATUS_SECOND });
            }
            (at::MAYBE_BARE_SECOND, b'0') => self.go(at::MAYBE_BARE_THIRD),
            (at::MAYBE_BARE_SECOND | at::STATUS_SECOND, _) if digit => self.go(at::STATUS_THIRD),
            (at::MAYBE_BARE_THIRD | at::STATUS_THIRD, _) if digit => {
                self.0 |= if state == at::MAYBE_BARE_THIRD && byte == b'4' { BARE } else { 0 };
                self.go(at::STATUS_END);
            }
            (at::STATUS_END, b' ') => self.go(at::REST),
            (at::FIELD, b'\r') => self.go(at::LAST_FEED),
            (at::FIELD | at::LAST_FEED, b'\n') => return Ok(true),
            (at::FIELD, _) => match byte.to_ascii_lowercase() {
                b'c' => self.go(CONTENT_LENGTH + 1),
                b't' => self.go(TRANSFER_ENCODING + 1),
                _ if is_token(byte) => self.go(at::NAME),
                _ => return Err(InvalidMessage),
            },
            (at::NAME, b':') => self.go(at::REST),
            (at::NAME, _) if is_token(byte) => {}
            (at::LENGTH | at::LENGTH_END | at::CODING | at::CHUNKED_END | at::OPTION, b' ' | b'\t') => {}
            (at::LENGTH | at::LENGTH_DIGITS, _) if digit => {
                *left = append(*left, 10, byte)?;
                self.go(at::LENGTH_DIGITS);
            }
            (at::LENGTH_DIGITS, b' ' | b'\t') => self.go(at::LENGTH_END),
            (at::LENGTH_DIGITS | at::LENGTH_END, _) => return self.line_end(byte),
            (at::CODING, b',') | (at::OPTION, b',') => {}
            (at::OTHER_CODING, b',') => self.go(at::CODING),
            (at::CHUNKED_END, b'\r' | b'\n') => {
                self.frame(CHUNKS);
                return self.line_end(byte);
            }
            (at::OTHER_OPTION, b',') => self.go(at::OPTION),
            (at::CODING | at::OTHER_CODING | at::OPTION | at::OTHER_OPTION, b'\r' | b'\n') => {
                return self.line_end(byte);
            }
            (at::CODING, _) => {
                // Until `chunked` is found to be the last coding, the end of the body is unknown (RFC 9112, 6.3).
                self.frame(CODED);
                self.go(if byte.eq_ignore_ascii_case(&b'c') { CHUNKED + 1 } else { at::OTHER_CODING });
            }
            (at::OPTION, _) => self.go(match byte.to_ascii_lowercase() {
                b'c' => CLOSE + 1,
                b'k' => KEEP_ALIVE + 1,
                _ => at::OTHER_OPTION,
            }),
            (at::OTHER_CODING | at::OTHER_OPTION, 1..) => {}
            _ => return Err(InvalidMessage),
        }
        Ok(false)
    }

    fn first_byte(&mut self, kind: Kind, left: &mut u32, byte: u8) -> Result<(), InvalidMessage> {
        self.0 &= PASSED;
        *left = 0;
        self.go(match (kind, byte) {
            // Empty lines before a request are passed over (RFC 9112, 2.2).
            (Kind::Request, b'\r' | b'\n') => at::START,
            (Kind::Request, b'G') => GET + 1,
            (Kind::Request, b'H') => HEAD + 1,
            (Kind::Request, b'P') => POST + 1,
            (Kind::Response | Kind::HeadResponse, b'H') => VERSION + 1,
            _ => return Err(InvalidMessage),
        });
        Ok(())
    }

    /// A word has come as far as `state`; some go on with what they mean.
    fn matched(&mut self, state: u8) -> Result<(), InvalidMessage> {
        match state {
            GET_DONE => self.0 |= GET_OR_OK,
            HEAD_DONE => self.0 |= BARE,
            POST_DONE => self.0 |= POST_OR_INTERIM,
            // A second one may say something else (RFC 9112, 6.3).
            CONTENT_LENGTH_DONE if self.0 & FRAMING == LENGTH => return Err(InvalidMessage),
            // Chunks count, and a length beside them does not.
            CONTENT_LENGTH_DONE if self.0 & FRAMING == 0 => self.frame(LENGTH),
            _ => {}
        }
        self.go(match state {
            GET_DONE | HEAD_DONE | POST_DONE => at::TARGET,
            CONTENT_LENGTH_DONE if self.0 & FRAMING == LENGTH => at::LENGTH,
            CONTENT_LENGTH_DONE => at::REST,
            CONNECTION_DONE => at::OPTION,
            TRANSFER_ENCODING_DONE => at::CODING,
            _ => state,
        });
        Ok(())
    }

    /// A byte that is not the next one of the word.
    fn mismatched(&mut self, state: u8, byte: u8) -> Result<(), InvalidMessage> {
        match (state, byte) {
            (VERSION_DONE, b'0'..=b'9') => {
                self.0 |= if byte == b'0' { 0 } else { PERSISTENT };
                self.go(if self.is_response() { at::STATUS_SPACE } else { at::REQUEST_END });
            }
            (CONTENT, b'n' | b'N') => self.go(CONNECTION + 1),
            (CHUNKED_DONE, b' ' | b'\t') => self.go(at::CHUNKED_END),
            (CHUNKED_DONE, b'\r' | b'\n') => {
                self.frame(CHUNKS);
                self.line_end(byte)?;
            }
            (CLOSE_DONE | KEEP_ALIVE_DONE, b' ' | b'\t' | b',' | b'\r' | b'\n') => {
                self.0 = if state == CLOSE_DONE { self.0 & !PERSISTENT } else { self.0 | PERSISTENT };
                match byte {
                    b'\r' | b'\n' => return self.line_end(byte).map(drop),
                    _ => self.go(at::OPTION),
                }
            }
            (CHUNKED..=CHUNKED_DONE, b',') => self.go(at::CODING),
            (CHUNKED..=CHUNKED_DONE | CLOSE..=CLOSE_DONE | KEEP_ALIVE..=KEEP_ALIVE_DONE, b'\r' | b'\n') => {
                self.line_end(byte)?;
            }
            (CLOSE..=CLOSE_DONE | KEEP_ALIVE..=KEEP_ALIVE_DONE, b',') => self.go(at::OPTION),
            (CHUNKED..=CHUNKED_DONE, 1..) => self.go(at::OTHER_CODING),
            (CLOSE..=CLOSE_DONE | KEEP_ALIVE..=KEEP_ALIVE_DONE, 1..) => self.go(at::OTHER_OPTION),
            (CONTENT_LENGTH..CHUNKED, b':') => self.go(at::REST),
            (CONTENT_LENGTH..CHUNKED, _) if is_token(byte) => self.go(at::NAME),
            _ => return Err(InvalidMessage),
        }
        Ok(())
    }

    /// Whether the version that was read began the message: a request has its method before it.
    fn is_response(self) -> bool {
        !self.says(GET_OR_OK | POST_OR_INTERIM | BARE)
    }

    /// The end of a line, or the first half of it.
    fn line_end(&mut self, byte: u8) -> Result<bool, InvalidMessage> {
        match byte {
            b'\r' => self.go(at::FEED),
            b'\n' => self.go(at::FIELD),
            _ => return Err(InvalidMessage),
        }
        Ok(false)
    }

    /// What comes behind the header (RFC 9112, 6.3).
    fn header_end(&mut self, kind: Kind, left: u32) -> Result<(), InvalidMessage> {
        let framing = self.0 & FRAMING;
        let request = kind == Kind::Request;
        self.go(match framing {
            _ if !request && self.says(POST_OR_INTERIM) => at::START,
            _ if kind == Kind::HeadResponse || !request && self.says(BARE) => at::DONE,
            LENGTH if left == 0 => at::DONE,
            LENGTH => at::BODY,
            CHUNKS => at::CHUNK_SIZE,
            0 if request => at::DONE,
            _ if request => return Err(InvalidMessage),
            _ => at::BODY_UNTIL_CLOSE,
        });
        if self.ends_by_close() {
            self.0 &= !PERSISTENT;
        }
        self.0 &= !PASSED;
        Ok(())
    }

    /// Reads on behind the header, as far as the message goes; how many bytes that took. `left` is what is left of the
    /// body or the chunk.
    pub fn body(&mut self, left: &mut u32, sequence: u32, bytes: &[u8]) -> Result<usize, InvalidMessage> {
        let mut n = 0;
        // Where the lines between chunks began.
        let mut lines = 0;
        while n < bytes.len() && !self.is_done() {
            match self.at() {
                at::BODY_UNTIL_CLOSE => return Ok(bytes.len()),
                at::BODY | at::CHUNK_DATA => {
                    let taken = (bytes.len() - n).min(*left as usize);
                    n += taken;
                    *left -= taken as u32;
                    if *left == 0 {
                        self.go(if self.at() == at::BODY { at::DONE } else { at::CHUNK_DATA_END });
                        self.0 &= !PASSED;
                        lines = n;
                    }
                }
                _ => {
                    self.line_byte(left, bytes[n])?;
                    n += 1;
                }
            }
        }
        if !self.is_done() && !matches!(self.at(), at::BODY | at::CHUNK_DATA) {
            self.pass(sequence.wrapping_add(lines as u32), n - lines)?;
        }
        Ok(n)
    }

    /// Of the lines between chunks and behind the last one (RFC 9112, 7.1).
    fn line_byte(&mut self, left: &mut u32, byte: u8) -> Result<(), InvalidMessage> {
        self.go(match (self.at(), byte) {
            (at::CHUNK_DATA_END, b'\r') => at::CHUNK_DATA_FEED,
            (at::CHUNK_DATA_END | at::CHUNK_DATA_FEED, b'\n') => at::CHUNK_SIZE,
            (at::CHUNK_SIZE | at::CHUNK_DIGITS, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                *left = append(if self.at() == at::CHUNK_SIZE { 0 } else { *left }, 16, byte)?;
                at::CHUNK_DIGITS
            }
            (at::CHUNK_DIGITS | at::CHUNK_EXTENSION, b'\r') => at::CHUNK_FEED,
            (at::CHUNK_DIGITS | at::CHUNK_EXTENSION | at::CHUNK_FEED, b'\n') => match *left {
                0 => at::TRAILER,
                _ => at::CHUNK_DATA,
            },
            (at::CHUNK_DIGITS, b';' | b' ' | b'\t') | (at::CHUNK_EXTENSION, 1..) => at::CHUNK_EXTENSION,
            (at::TRAILER, b'\r') => at::TRAILER_FEED,
            (at::TRAILER | at::TRAILER_FEED, b'\n') => at::DONE,
            (at::TRAILER_REST, b'\n') => at::TRAILER,
            (at::TRAILER_REST, 1..) => at::TRAILER_REST,
            (at::TRAILER, _) if is_token(byte) => at::TRAILER_REST,
            _ => return Err(InvalidMessage),
        });
        Ok(())
    }
}

/// `number` with one more digit.
fn append(number: u32, base: u32, digit: u8) -> Result<u32, InvalidMessage> {
    let digit = char::from(digit).to_digit(base).ok_or(InvalidMessage)?;
    // No overflow: the number so far is at most the longest body.
    let number = u64::from(number) * u64::from(base) + u64::from(digit);
    if number <= LONGEST_BODY.into() { Ok(number as u32) } else { Err(InvalidMessage) }
}

/// Whether a byte may stand in a field's name (RFC 9110, 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

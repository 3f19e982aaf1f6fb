//! Socket options and calls that std lacks.

//! Lines on stdout.
//!
//! The standard `println!` panics when nobody reads any more, which is how `agentwire formats | head -1` ends. Whoever
//! closes the pipe has seen enough: the command ends there, and nothing went wrong.

use std::{
    fmt,
    io::{self, Write},
    process,
};

use crate::{error::Class, progress};

/// As the standard one, but for a pipe that was closed. Styles are shown where they can be.
macro_rules! println {
    () => { $crate::print::line(format_args!("")) };
    ($($text:tt)+) => { $crate::print::line(format_args!($($text)+)) };
}

pub(crate) fn line(text: fmt::Arguments<'_>) {
    line_or(text, 0);
}

/// The same for a command that already knows how it ends, whoever reads on.
pub(crate) fn line_or(text: fmt::Arguments<'_>, code: i32) {
    match progress::aside(|| writeln!(anstream::stdout(), "{text}")) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => process::exit(code),
        Err(error) => {
            anstream::eprintln!("error: stdout cannot be written: {error}");
            process::exit(Class::Io as i32);
        }
    }
}

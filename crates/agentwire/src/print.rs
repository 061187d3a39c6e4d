//! Output to stdout that tolerates a closed pipe.
//!
//! The standard `println!` panics on a closed pipe, as in `agentwire formats | head -1`. A reader that closes the pipe
//! has read enough, so the command exits without an error.

use std::{
    fmt,
    io::{self, Write},
    process,
};

use crate::{error::Class, progress};

/// Like the standard macro, but exits on a closed pipe. ANSI styles are removed where the output does not support them.
macro_rules! println {
    () => { $crate::print::line(format_args!("")) };
    ($($text:tt)+) => { $crate::print::line(format_args!($($text)+)) };
}

pub(crate) fn line(text: fmt::Arguments<'_>) {
    line_or_exit(text, 0);
}

/// Prints a line; on a closed pipe, exits with `code`, for commands whose result is already known.
pub(crate) fn line_or_exit(text: fmt::Arguments<'_>, code: i32) {
    match progress::suspend(|| writeln!(anstream::stdout(), "{text}")) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            progress::finish();
            process::exit(code)
        }
        Err(error) => {
            progress::finish();
            anstream::eprintln!("error: stdout cannot be written: {error}");
            process::exit(Class::Io as i32);
        }
    }
}

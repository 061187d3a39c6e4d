//! Output to stdout that tolerates a closed pipe.
//!
//! The standard `println!` panics on a closed pipe, as in `agentwire formats | head -1`. A reader that closes the pipe
//! has read enough, so the command exits without an error.

use std::{
    fmt,
    io::{self, Write},
    panic,
};

use crate::{
    error::{Class, ExitCode},
    progress,
};

/// Like the standard macro, but exits on a closed pipe. ANSI styles are removed where the output does not support them.
macro_rules! println {
    () => { $crate::print::line(format_args!("")) };
    ($($text:tt)+) => { $crate::print::line(format_args!($($text)+)) };
}

pub(crate) fn line(text: fmt::Arguments<'_>) {
    line_or_exit(text, 0);
}

/// Ends the command by unwinding to [`crate::main_with`]: the process may be a Python interpreter, which has its own end.
fn exit(code: u8) -> ! {
    panic::resume_unwind(Box::new(ExitCode::from(code)))
}

/// Prints a line; on a closed pipe, exits with `code`, for commands whose result is already known.
pub(crate) fn line_or_exit(text: fmt::Arguments<'_>, code: u8) {
    match progress::suspend(|| writeln!(anstream::stdout(), "{text}")) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            progress::finish();
            exit(code)
        }
        Err(error) => {
            progress::finish();
            anstream::eprintln!("error: stdout cannot be written: {error}");
            exit(Class::Io as u8)
        }
    }
}

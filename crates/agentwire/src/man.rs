//! The man pages.

use std::{fs, io, path::Path};

use clap::{Command, CommandFactory};
use clap_mangen::Man;

/// Writes a page for each command into a folder.
pub(crate) fn write<C: CommandFactory>(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut command = C::command().disable_help_subcommand(true);
    // Commands get their whole names.
    command.build();
    pages(&command, folder)
}

fn pages(command: &Command, folder: &Path) -> io::Result<()> {
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        pages(inner, folder)?;
    }
    // Commands below the first have no version: their pages would end with their last word.
    let source = concat!("agentwire ", env!("CARGO_PKG_VERSION"));
    Man::new(command.clone()).source(source).generate_to(folder)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_names_the_version() {
        let folder = tempfile::tempdir().unwrap();
        write::<crate::Cli>(folder.path()).unwrap();
        let mut names: Vec<_> =
            fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert!(names.len() > 20, "{names:?}");
        assert!(names.contains(&"agentwire-store-backup.1".into()));
        for name in names {
            let page = fs::read_to_string(folder.path().join(&name)).unwrap();
            let title = page.lines().find(|line| line.starts_with(".TH")).unwrap();
            assert!(title.contains(concat!("\"agentwire ", env!("CARGO_PKG_VERSION"), "\"")), "{title}");
        }
    }
}

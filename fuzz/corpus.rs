//! Writes the corpora that the fuzz targets begin with: `corpus DIRECTORY` fills `DIRECTORY/TARGET/`.

use std::path::Path;
use std::process::ExitCode;

use nuthatch_testkit::dice::Dice;
use nuthatch_testkit::hostile;

fn main() -> ExitCode {
    let Some(directory) = std::env::args_os().nth(1) else {
        eprintln!("usage: corpus DIRECTORY");
        return ExitCode::FAILURE;
    };
    let codecs = nuthatch_proto::fuzz::corpus();
    let mut dice = Dice::seeded(1);
    let rubbish: Vec<_> = (0..200).map(|_| hostile::rubbish(&mut dice, &hostile::corpus())).collect();
    let choices: Vec<_> = (0..50).map(|_| (0..400).map(|_| dice.u8(..)).collect()).collect();
    let pages = nuthatch_pages::fuzz::corpus();
    let answers = nuthatch_fleet::client::fuzz::corpus();
    let all: [(&str, &[Vec<u8>]); 12] = [
        ("ascii", &codecs),
        ("binary", &codecs),
        ("udp", &codecs),
        ("replies", &codecs),
        ("answers", &answers),
        ("connection", &rubbish),
        ("conversation", &choices),
        ("pages-page", &pages),
        ("pages-foreign", &pages),
        ("pages-url", &pages),
        ("pages-coding", &pages),
        ("pages-rules", &pages),
    ];
    for (target, inputs) in all {
        if let Err(error) = write(&Path::new(&directory).join(target), inputs) {
            eprintln!("cannot write the corpus of {target}: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn write(directory: &Path, inputs: &[Vec<u8>]) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    inputs.iter().enumerate().try_for_each(|(n, input)| std::fs::write(directory.join(format!("seed-{n:04}")), input))
}

//! A link writes and reads workers and banks. The simulator runs when `TTSIM_LIB` names it.

use std::io::Write;
use tt_metal_sys::{Error, Link, Null, Ttsim, Xy, bank};

fn round_trip(link: &mut dyn Link) {
    let bytes: Vec<u8> = (0..5000u32).map(|i| (i * 7) as u8).collect();
    let mut back = vec![0; bytes.len()];
    // The last crosses a 2 MiB boundary of a bank, and is far into it.
    for (at, addr) in [(Xy::new(1, 2), 0x60000), (bank(0), 64), (bank(5), (3 << 30) - 128)] {
        link.write(at, addr, &bytes).expect("it writes");
        link.read(at, addr, &mut back).expect("it reads");
        assert!(bytes == back, "{at} {addr:#x}");
    }
    link.multicast(Xy::new(1, 2), Xy::new(11, 4), 0x70000, &bytes).expect("it multicasts");
    for (x, y, hit) in [(1, 2, true), (11, 4, true), (10, 3, true), (12, 4, false), (11, 5, false)] {
        link.read(Xy::new(x, y), 0x70000, &mut back).expect("it reads");
        assert_eq!(bytes == back, hit, "({x}, {y})");
    }
    // Between the worker columns, a second port of a bank, a turned rectangle.
    for at in [Xy::new(8, 2), Xy::new(17, 12)] {
        assert!(matches!(link.write(at, 0, &bytes), Err(Error::Refused(_))), "{at}");
        assert!(matches!(link.read(at, 0, &mut back), Err(Error::Refused(_))), "{at}");
    }
    let turned = link.multicast(Xy::new(11, 4), Xy::new(1, 2), 0x70000, &bytes);
    assert!(matches!(turned, Err(Error::Refused(_))));
}

#[test]
fn the_recording_link_remembers() {
    round_trip(&mut Null::new((1..=7).chain(10..=14).collect(), (2..=11).collect()));
}

#[test]
fn the_simulator_reads_back_what_was_written() {
    let Some(library) = std::env::var_os("TTSIM_LIB") else {
        // Not `eprintln!`, which a passing test hides.
        let said = "NOT RUN, nothing was simulated: TTSIM_LIB does not name libttsim.so\n";
        std::io::stderr().write_all(said.as_bytes()).expect("stderr is open");
        return;
    };
    round_trip(&mut Ttsim::open(library.as_ref()).expect("it starts"));
}

#[test]
fn a_missing_library_is_named() {
    let error = Ttsim::open("/nowhere/libttsim.so".as_ref()).err().expect("it is refused");
    assert!(matches!(&error, Error::Unavailable(text) if text.contains("/nowhere/libttsim.so")), "{error}");
}

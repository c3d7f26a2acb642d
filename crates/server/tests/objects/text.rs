//! Text commands against a server in this process.

use crate::common::{Client, settings, start};

#[test]
fn what_is_set_is_got_and_what_is_deleted_is_gone() {
    let server = start(settings());
    let mut client = Client::connect(&server);
    client.ask("set bird 5 0 8\r\nnuthatch\r\n", "STORED\r\n");
    client.ask("get bird\r\n", "VALUE bird 5 8\r\nnuthatch\r\nEND\r\n");
    client.ask("get bird nobird bird\r\n", "VALUE bird 5 8\r\nnuthatch\r\nVALUE bird 5 8\r\nnuthatch\r\nEND\r\n");
    client.ask("delete bird\r\n", "DELETED\r\n");
    client.ask("delete bird\r\n", "NOT_FOUND\r\n");
    client.ask("get bird\r\n", "END\r\n");
    client.ask("mn\r\n", "MN\r\n");
}

#[test]
fn a_value_of_a_mebibyte_comes_back_byte_for_byte() {
    let server = start(settings());
    let mut client = Client::connect(&server);
    let value: Vec<u8> = (0..1_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    client.send(format!("set big 0 0 {}\r\n", value.len()));
    client.send(&value);
    client.ask("\r\n", "STORED\r\n");
    for _ in 0..3 {
        let mut expected = format!("VALUE big 0 {}\r\n", value.len()).into_bytes();
        expected.extend_from_slice(&value);
        expected.extend_from_slice(b"\r\nEND\r\n");
        client.ask("get big\r\n", &expected);
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = start(settings());
    let mut client = Client::connect(&server);
    let mut request = String::new();
    let mut expected = String::new();
    for n in 0..5000 {
        request += &format!("set key{n} 0 0 5\r\n{n:05}\r\nget key{n}\r\n");
        expected += &format!("STORED\r\nVALUE key{n} 0 5\r\n{n:05}\r\nEND\r\n");
    }
    let mut writer = client.stream.try_clone().expect("a second handle");
    let sending = std::thread::spawn(move || std::io::Write::write_all(&mut writer, request.as_bytes()));
    client.expect(expected);
    sending.join().expect("no panic").expect("sent");
}

//! Known answers, and what holds of every distribution.

use super::*;

fn servers(texts: &[&str]) -> Vec<ServerSpec> {
    texts.iter().map(|text| ServerSpec::parse(text).unwrap_or_else(|expected| panic!("{text}: {expected}"))).collect()
}

fn settings(distribution: Distribution, hash: Option<Hash>) -> PlacementSettings {
    PlacementSettings { distribution, hash, ..PlacementSettings::default() }
}

fn placement(distribution: Distribution, hash: Option<Hash>, texts: &[&str]) -> Placement {
    Placement::new(&settings(distribution, hash), &servers(texts)).unwrap()
}

fn keys() -> impl Iterator<Item = Vec<u8>> {
    (0..20_000u32).map(|number| format!("key:{number:x}").into_bytes())
}

fn ten(distribution: Distribution) -> Placement {
    let texts: Vec<String> = (1..=10).map(|n| format!("10.0.0.{n}:11211")).collect();
    placement(distribution, None, &texts.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn libmemcacheds_own_weighted_ring() {
    let weights = [600, 300, 200, 350, 1000, 800, 950, 100];
    let texts: Vec<String> = weights.iter().zip(1..).map(|(w, n)| format!("10.0.1.{n} weight={w}")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let placement = placement(Distribution::KetamaWeighted, None, &texts);
    let Method::Ring(_, ring) = &placement.method else { panic!("{placement:?}") };
    assert_eq!(ring.len(), 1264);
    for (key, hash, point, server) in [
        (&b"SVa_]_V41)"[..], 443_691_461, 445_379_617, 7),
        (b"30C1*Z*S/_", 1_473_165_754, 1_480_075_959, 2),
        (b"D[HE+cFXDK", 2_117_036_136, 2_117_124_014, 3),
        (b"P1[Ma3=K1/", 1_989_324_036, 1_994_028_240, 8),
        // Past the last point is the first.
        (b"VDEAAAAA", 0xfffc_d1b5, 2_148_620, 3),
    ] {
        let expected = Explanation { server: server - 1, hash: Some(("md5", hash)), point: Some(point), score: None };
        assert_eq!(placement.explain(key), expected);
        assert_eq!(placement.server_of(key), server - 1);
    }
}

#[test]
fn what_debians_libmemcached_answers_in_each_mode() {
    let plain = ["10.0.1.1:11211", "10.0.1.2:11211", "10.0.1.3:11311"];
    let weighted = ["10.0.1.1:11211 weight=3", "10.0.1.2:11211 weight=1", "10.0.1.3:11311 weight=2"];
    for (distribution, hash, texts, expected) in [
        (Distribution::KetamaWeighted, None, plain, [2, 2, 2, 2, 2, 1, 2]),
        (Distribution::KetamaWeighted, None, weighted, [2, 2, 2, 2, 2, 0, 0]),
        (Distribution::Ketama, None, plain, [0, 0, 1, 1, 2, 2, 2]),
        (Distribution::Ketama, Some(Hash::Md5), plain, [2, 2, 1, 2, 0, 2, 1]),
        (Distribution::Ketama, None, weighted, [2, 2, 2, 2, 1, 1, 2]),
        (Distribution::Modula, None, plain, [0, 1, 1, 2, 2, 0, 1]),
    ] {
        let placement = placement(distribution, hash, &texts);
        let keys = ["foo", "bar", "baz", "user:1", "user:2", "session:abc", "k7"];
        assert_eq!(keys.map(|key| placement.server_of(key.as_bytes())), expected, "{distribution:?} {hash:?}");
    }
}

#[test]
fn hashes_of_the_published_examples() {
    for (hash, key, expected) in [
        // RFC 1321, A.5; the first four bytes.
        (Hash::Md5, &b"abc"[..], 0x9850_0190),
        // The check value of the CRC-32 is cbf43926.
        (Hash::Crc, b"123456789", 0x4bf4),
        (Hash::Crc32a, b"123456789", 0xcbf4_3926),
        // draft-eastlake-fnv, "foobar".
        (Hash::Fnv1_32, b"foobar", 0x31f0_b262),
        (Hash::Fnv1a32, b"foobar", 0xbf9c_f968),
        (Hash::Fnv1_64, b"foobar", 0x340d_8765_a4dd_a9c2_u64 as u32),
        // Bob Jenkins' page on one-at-a-time, as its Wikipedia article gives it.
        (Hash::OneAtATime, b"a", 0xca2e_9442),
        (Hash::OneAtATime, b"The quick brown fox jumps over the lazy dog", 0x519e_91f5),
    ] {
        assert_eq!(hash.of(key), expected, "{hash:?}");
    }
    // XModem's check value, of which the lower half is all that other programs show.
    assert_eq!(Hash::Crc16.of(b"123456789") & 0xffff, 0x31c3);
}

#[test]
fn one_server_has_every_key_and_two_of_one_are_refused() {
    for distribution in Distribution::ALL {
        let one = placement(distribution, None, &["a:1", "b:1 weight=0"]);
        assert!(
            keys().take(100).all(|key| one.server_of(&key) == 0 && one.candidates(&key).eq([0])),
            "{distribution:?}"
        );
        let error =
            |texts: &[&str]| Placement::new(&settings(distribution, None), &servers(texts)).unwrap_err().to_string();
        assert_eq!(error(&["a:1", "b", "a:1 weight=2"]), "servers: expected each once, a:1 is listed twice");
        assert_eq!(error(&[]), "servers: expected at least one that takes keys");
        assert_eq!(error(&["a weight=0"]), "servers: expected at least one that takes keys");
        let many: Vec<String> = (0..1025).map(|n| format!("h{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(error(&many), "servers: expected at most 1024, not 1025");
    }
    let error = Placement::new(&settings(Distribution::Dalli, Some(Hash::Md5)), &servers(&["a"])).unwrap_err();
    assert_eq!(error.to_string(), "hash: expected none with distribution dalli, which has a hash of its own, not md5");
}

#[test]
fn candidates_begin_with_the_keys_server_and_name_each_other_once() {
    for distribution in Distribution::ALL {
        let placement = ten(distribution);
        for key in keys().take(2000) {
            let candidates: Vec<usize> = placement.candidates(&key).collect();
            assert_eq!(candidates[0], placement.server_of(&key), "{distribution:?}");
            let distinct: Set = candidates.iter().copied().collect();
            assert_eq!((0..10).filter(|server| distinct.has(*server)).count(), candidates.len(), "{distribution:?}");
            // Dalli gives up after twenty tries, which seldom find all of ten.
            assert!(candidates.len() == 10 || distribution == Distribution::Dalli, "{distribution:?}");
            assert!(candidates.len() > 3);
        }
    }
}

#[test]
fn a_server_of_weight_zero_takes_no_keys_and_keeps_its_index() {
    for distribution in Distribution::ALL {
        let without = placement(distribution, None, &["a:1", "c:1", "d:1"]);
        let with = placement(distribution, None, &["a:1", "b:1 weight=0", "c:1", "d:1"]);
        for key in keys().take(2000) {
            assert_eq!(with.server_of(&key), [0, 2, 3][without.server_of(&key)], "{distribution:?}");
            assert!(with.candidates(&key).all(|server| server != 1), "{distribution:?}");
        }
    }
}

#[test]
fn without_a_server_only_its_keys_move_where_the_distribution_promises_it() {
    for distribution in Distribution::ALL {
        let (all, out) = (ten(distribution), Set::from_iter([3]));
        let less = all.without(&out);
        for key in keys().take(5000) {
            let (was, is) = (all.server_of(&key), less.server_of(&key));
            match distribution {
                // libmemcached's modula knows no ejection, and twemproxy's counts anew.
                Distribution::Modula => assert_eq!(was, is),
                Distribution::TwemproxyModula => assert_ne!(is, 3),
                _ => assert!(is != 3 && (is == was || was == 3), "{distribution:?}: {was} to {is}"),
            }
            if was == 3 && !matches!(distribution, Distribution::Modula | Distribution::TwemproxyModula) {
                assert_eq!(is, all.candidates(&key).nth(1).unwrap(), "{distribution:?}: ejected and passed over alike");
            }
        }
        let none = all.without(&(0..10).collect());
        assert!(
            keys().take(1000).all(|key| none.server_of(&key) == all.server_of(&key)),
            "{distribution:?}: all are out"
        );
    }
}

#[test]
fn ejection_counts_the_weights_that_are_left() {
    let texts = ["10.0.0.1 weight=3", "10.0.0.2 weight=5", "10.0.0.3 weight=7", "10.0.0.4 weight=11"];
    let less = placement(Distribution::KetamaWeighted, None, &texts).without(&Set::from_iter([1]));
    let short = placement(Distribution::KetamaWeighted, None, &[texts[0], texts[2], texts[3]]);
    assert!(keys().all(|key| less.server_of(&key) == [0, 2, 3][short.server_of(&key)]));
}

#[test]
fn when_one_of_ten_joins_a_tenth_of_the_keys_moves_and_all_of_them_to_it() {
    for distribution in Distribution::ALL {
        let texts: Vec<String> = (1..=10).map(|n| format!("10.0.0.{n}:11211")).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let (nine, ten) = (placement(distribution, None, &texts[..9]), placement(distribution, None, &texts));
        let (mut moved, mut elsewhere, mut all) = (0, 0, 0);
        for key in keys() {
            let (was, is) = (nine.server_of(&key), ten.server_of(&key));
            all += 1;
            moved += usize::from(was != is);
            elsewhere += usize::from(was != is && is != 9);
        }
        let share = moved as f64 / (all as f64 / 10.0);
        println!("{:16} {share:.2} of a tenth moved, {elsewhere} keys to another server", distribution.name());
        match distribution {
            Distribution::Modula | Distribution::TwemproxyModula => {
                assert!(share > 8.0, "modula keeps a tenth: {share}")
            }
            _ => {
                assert!((0.7..=1.3).contains(&share), "{distribution:?}: {share}");
                assert_eq!(elsewhere, 0, "{distribution:?}");
            }
        }
    }
}

#[test]
fn weights_are_shares_where_the_distribution_knows_them() {
    for distribution in [
        Distribution::KetamaWeighted,
        Distribution::KetamaSpy,
        Distribution::Twemproxy,
        Distribution::TwemproxyModula,
        Distribution::Dalli,
        Distribution::Rendezvous,
    ] {
        let placement = placement(
            distribution,
            Some(Hash::Md5).filter(|_| distribution.default_hash().is_some()),
            &["10.0.0.1 weight=1", "10.0.0.2 weight=2", "10.0.0.3 weight=5"],
        );
        let mut counts = [0.0; 3];
        keys().for_each(|key| counts[placement.server_of(&key)] += 1.0 / 20_000.0);
        for (count, expected) in counts.iter().zip([0.125, 0.25, 0.625]) {
            assert!((count / expected - 1.0f64).abs() < 0.35, "{distribution:?}: {counts:?}");
        }
    }
}

#[test]
fn a_namespace_counts_only_when_it_is_asked_for() {
    let servers = servers(&["a", "b", "c", "d", "e"]);
    for distribution in Distribution::ALL {
        let plain = Placement::new(&settings(distribution, None), &servers).unwrap();
        let with = |hash_with_namespace| {
            let namespace = b"ns:".to_vec();
            let settings = PlacementSettings { namespace, hash_with_namespace, ..settings(distribution, None) };
            Placement::new(&settings, &servers).unwrap()
        };
        let (sent, hashed) = (with(false), with(true));
        for key in keys().take(500) {
            let whole = [b"ns:", &key[..]].concat();
            assert_eq!(hashed.server_of(&key), plain.server_of(&whole), "{distribution:?}");
            // Dalli's ring is handed keys that have their namespace.
            let expected = if distribution == Distribution::Dalli { &whole } else { &key };
            assert_eq!(sent.server_of(&key), plain.server_of(expected), "{distribution:?}");
        }
        if distribution.default_hash().is_some() {
            assert_eq!(hashed.explain(&[b'k'; 248]).hash.map(|(_, hash)| hash), Some(0), "251 bytes hash as 0");
            assert_ne!(hashed.explain(&[b'k'; 247]).hash.map(|(_, hash)| hash), Some(0));
        }
    }
}

#[test]
fn a_hash_tag_is_what_stands_between_its_characters() {
    for (key, expected) in [
        ("user:{42}:name", "42"),
        ("{}x", "{}x"),
        ("a{b", "a{b"),
        ("a}b{c}", "c"),
        ("{a}{b}", "a"),
        ("plain", "plain"),
        ("{{a}}", "{a"),
    ] {
        assert_eq!(tagged(key.as_bytes(), (b'{', b'}')), expected.as_bytes(), "{key}");
    }
    assert_eq!(tagged(b"$7$x", (b'$', b'$')), b"7");
    let servers = servers(&["a", "b", "c", "d", "e"]);
    let settings = PlacementSettings { hash_tag: Some((b'{', b'}')), ..PlacementSettings::default() };
    let placement = Placement::new(&settings, &servers).unwrap();
    assert!(keys().take(500).all(|key| {
        let tagged = [b"x{", &key[..], b"}y"].concat();
        placement.server_of(&tagged) == placement.server_of(&key)
    }));
}

#[test]
fn sorted_hosts_place_alike_whatever_their_order() {
    let one = ["b:2", "a:3", "b:1", "c:1"];
    let other = ["c:1", "b:1", "a:3", "b:2"];
    for distribution in Distribution::ALL {
        let settings = PlacementSettings { sort_hosts: true, ..settings(distribution, None) };
        let (one, other) = (servers(&one), servers(&other));
        let (first, second) = (Placement::new(&settings, &one).unwrap(), Placement::new(&settings, &other).unwrap());
        for key in keys().take(500) {
            assert_eq!(one[first.server_of(&key)], other[second.server_of(&key)], "{distribution:?}");
        }
    }
}

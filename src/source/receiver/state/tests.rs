use std::net::Ipv4Addr;

use super::*;

fn key(name: &str) -> Key {
    Key::new("kcp-system", name)
}

fn address(last: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, last).into()
}

/// Delivers at these times, in milliseconds, and says when the source is woken within two minutes.
fn woken(deliveries: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let (began, at) = (Instant::now(), Timestamp::UNIX_EPOCH);
    let mut state = State::default();
    let mut woken = Vec::new();
    let mut deliveries = deliveries.into_iter().peekable();
    for now in 0..120_000 {
        let moment = began + Duration::from_millis(now);
        while deliveries.next_if_eq(&now).is_some() {
            state.delivered(&key("landscape"), moment, at);
            // The shell looks after each delivery.
            woken.extend(state.due(moment).0.iter().map(|_| now));
        }
        woken.extend(state.due(moment).0.iter().map(|_| now));
    }
    woken
}

#[test]
fn a_push_wakes_its_source_at_once_and_one_soon_after_it_half_a_second_later() {
    assert_eq!(woken([7]), [7]);
    assert_eq!(woken([0, 600, 1_200]), [0, 600, 1_200]);
    assert_eq!(woken([0, 1, 2, 499]), [0, 500]);
    assert_eq!(woken([0, 100, 600]), [0, 500, 1_000]);
}

#[test]
fn a_storm_of_ten_thousand_wakes_a_source_twice() {
    // At once, and over nine seconds.
    assert_eq!(woken(std::iter::repeat_n(0, 10_000)), [0, 10_000]);
    assert_eq!(woken((0..10_000).map(|number| number * 9 / 10)), [0, 10_000]);
    // One that lasts for a minute wakes it as often as the shortest interval of polling.
    assert_eq!(woken((0..10_000).map(|number| number * 6)), [0, 10_000, 20_000, 30_000, 40_000, 50_000, 60_000]);
}

#[test]
fn after_a_storm_a_push_wakes_its_source_at_once_again() {
    let storm = std::iter::repeat_n(0, 10_000);
    assert_eq!(woken(storm.chain([40_000])), [0, 10_000, 40_000]);
}

#[test]
fn a_storm_delays_no_other_source() {
    let (now, at) = (Instant::now(), Timestamp::UNIX_EPOCH);
    let mut state = State::default();
    (0..10_000).for_each(|_| state.delivered(&key("storm"), now, at));
    state.delivered(&key("calm"), now, at);
    assert_eq!(state.due(now).0, [key("calm"), key("storm")]);
    (0..10_000).for_each(|_| state.delivered(&key("storm"), now, at));
    let later = now + GAP;
    state.delivered(&key("calm"), later, at);
    assert_eq!(state.due(later), (vec![key("calm")], Some(now + STORM_GAP)));
}

#[test]
fn the_last_delivery_of_a_source_is_known_until_it_is_forgotten() {
    let (now, at) = (Instant::now(), Timestamp::from_second(7).unwrap());
    let mut state = State::default();
    assert_eq!(state.last(&key("landscape")), None);
    state.delivered(&key("landscape"), now, at);
    assert_eq!(state.last(&key("landscape")), Some((now, at)));
    state.forget(&key("landscape"));
    assert_eq!((state.last(&key("landscape")), state.due(now)), (None, (Vec::new(), None)));
}

#[test]
fn an_id_is_known_for_ten_thousand_deliveries_of_one_receiver_and_host() {
    let mut state = State::default();
    let receiver = key("hook");
    assert!(!state.is_known(&receiver, Host::GitHub, "0"));
    assert!(state.is_known(&receiver, Host::GitHub, "0"));
    assert!(!state.is_known(&receiver, Host::GitLab, "0") && !state.is_known(&key("other"), Host::GitHub, "0"));
    for id in 1..DELIVERIES_MAX - 2 {
        assert!(!state.is_known(&receiver, Host::GitHub, &id.to_string()));
    }
    assert!(state.is_known(&receiver, Host::GitHub, "0"));
    assert!(!state.is_known(&receiver, Host::GitHub, "last"));
    assert!(!state.is_known(&receiver, Host::GitHub, "0"));
    assert_eq!((state.known.len(), state.order.len()), (DELIVERIES_MAX, DELIVERIES_MAX));
}

#[test]
fn an_address_with_many_refused_deliveries_waits_and_others_do_not() {
    let now = Instant::now();
    let mut state = State::default();
    for _ in 0..REFUSED_MAX {
        assert!(state.admits(address(1), now));
        state.refused(address(1), now);
    }
    assert!(!state.admits(address(1), now) && state.admits(address(2), now));
    assert!(!state.admits(address(1), now + Duration::from_millis(900)));
    assert!(state.admits(address(1), now + Duration::from_secs(1)));
    // The owner of one IPv6 address has its whole network.
    let (one, other): (IpAddr, IpAddr) = ("2001:db8::1".parse().unwrap(), "2001:db8::ffff:1".parse().unwrap());
    (0..REFUSED_MAX).for_each(|_| state.refused(one, now));
    assert!(!state.admits(other, now) && state.admits("2001:db8:0:1::1".parse().unwrap(), now));
}

#[test]
fn as_many_addresses_are_remembered_as_the_limit_says() {
    let now = Instant::now();
    let mut state = State::default();
    let all = |number: usize| IpAddr::from(u32::try_from(number).unwrap().to_be_bytes());
    for number in 0..ADDRESSES_MAX + 5 {
        let later = now + Duration::from_micros(u64::try_from(number).unwrap());
        state.refused(all(number), later);
    }
    assert_eq!(state.addresses.len(), ADDRESSES_MAX);
    assert!(!state.addresses.contains_key(&all(0)) && state.addresses.contains_key(&all(ADDRESSES_MAX + 4)));
    // Those whose buckets are full go first.
    state.refused(address(1), now + Duration::from_secs(60));
    assert_eq!(state.addresses.len(), 1);
}

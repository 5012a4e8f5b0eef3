use super::*;

/// A port with few places, and connections by letter.
struct Port {
    places: PortConnections,
    numbers: BTreeMap<char, Number>,
    now: Instant,
}

const LIMITS: Limits = Limits { opening: 3, proven: 3, sender: 2 };
const GRACE: Duration = Duration::from_secs(1);

impl Port {
    fn new() -> Port {
        Port { places: PortConnections::new(LIMITS), numbers: BTreeMap::new(), now: Instant::now() }
    }

    fn name(&self, number: Number) -> char {
        self.numbers.iter().find(|(_, known)| **known == number).map_or('?', |(name, _)| *name)
    }

    /// Does one thing after another, and says who went.
    ///
    /// `a@1` accepts `a` from the address 10.0.0.1, `a+` completes its first message, `a=` proves its sender, `a=x` its
    /// sender x, `a.` ends its request, `a!` begins one, `a-` closes it; `room` needs a place, `room@1` one of the
    /// address 10.0.0.1, `idle` one of an idle connection, `later` lets the grace pass. `?` says that there is no
    /// place.
    fn plays(&mut self, script: &str) -> String {
        let mut went = String::new();
        for word in script.split_whitespace() {
            let evicted = match word {
                "later" => {
                    self.now += GRACE;
                    None
                }
                "room" => self.places.make_room(self.now, GRACE),
                room if room.starts_with("room@") => {
                    let address = format!("10.0.0.{}", &room[5..]).parse().unwrap();
                    self.places.make_room_at(address, self.now, GRACE)
                }
                "idle" => self.places.evict_idle(),
                word => self.does(word, &mut went),
            };
            if let Some(evicted) = evicted {
                went.push(self.name(evicted));
            }
        }
        went
    }

    fn does(&mut self, word: &str, went: &mut String) -> Option<Number> {
        let (name, rest) = (word.chars().next().unwrap(), &word[1..]);
        let number = self.numbers.get(&name).copied().unwrap_or_default();
        match rest.split_at(1) {
            ("@", address) => {
                let address = if address.contains(':') { address.into() } else { format!("10.0.0.{address}") };
                let (number, evicted) = self.places.admit(address.parse().unwrap());
                self.numbers.insert(name, number);
                return evicted;
            }
            ("+", _) => assert!(self.places.begin(number, self.now), "{word}"),
            ("=", sender) => match self.places.prove(number, (!sender.is_empty()).then_some(sender)) {
                Proven::Placed => {}
                Proven::InsteadOf(evicted) => return Some(evicted),
                Proven::Full => went.push('?'),
            },
            (".", _) => self.places.rest(number, self.now),
            ("!", _) => self.places.work(number),
            ("-", _) => self.places.leave(number),
            other => panic!("{other:?}"),
        }
        None
    }
}

#[track_caller]
fn check(script: &str, went: &str) {
    assert_eq!(Port::new().plays(script), went, "{script}");
}

#[test]
fn the_oldest_unfinished_connection_of_the_fullest_address_goes() {
    // One address alone: the oldest.
    check("a@1 b@1 c@1", "");
    check("a@1 b@1 c@1 d@1 e@1", "ab");
    // The fullest address pays, also for a newcomer from elsewhere.
    check("a@2 b@1 c@1 d@2", "b");
    check("a@2 b@1 c@1 d@3 e@3", "ba");
    // Many addresses with one connection each: the oldest of all.
    check("a@1 b@2 c@3 d@4 e@5", "ab");
    // The addresses of one IPv6 network are one peer, and an IPv4 address in IPv6 form is that address.
    check("a@9 b@2001:db8::1 c@2001:db8::2 d@9", "b");
    check("a@9 b@::ffff:10.0.0.1 c@1 d@9", "b");
}

#[test]
fn those_that_have_gone_or_got_on_hold_no_place() {
    check("a@1 b@1 c@1 a- d@1", "");
    check("a@1 b@1 c@1 a- a- d@1 e@1", "b");
    check("a@1 b@1 c@1 a+ d@1", "");
    check("a@1 b@1 c@1 a+ a= d@1", "");
    // A connection that has gone for another leaves the books at once.
    check("a@1 b@1 c@1 d@1 a- e@1", "ab");
}

#[test]
fn the_oldest_handshake_of_the_fullest_address_makes_room_after_a_grace() {
    check("room", "");
    check("a@1 a+ room", "");
    check("a@1 a+ later room room", "a");
    check("a@2 a+ b@1 b+ c@1 c+ later room room room", "bac");
    // An address that has used up its share makes room itself, even if another has more.
    check("a@2 a+ b@1 b+ c@1 c+ room@2 later room@2 room@2 room@3", "a");
    // One that is complete or has answered is not overdue.
    check("a@1 a+ a= later room", "");
    check("a@1 a+ later a. room later room", "a");
}

#[test]
fn idle_connections_go_for_other_senders_and_busy_ones_never() {
    // All three are busy.
    check("a@1 a= b@1 b= c@1 c= d@1 d=", "?");
    // The one goes that has been idle longest, wherever it comes from.
    check("a@1 a= b@2 b= c@3 c= b. a. d@1 d=", "b");
    check("a@1 a= b@2 b= c@3 c= b. a. b! d@1 d= e@1 e=", "a?");
    check("a@1 a= b@2 b= c@3 c= c. c! c. a. idle idle idle", "ca");
    // Each connection counts once.
    check("a@1 a= a= a= b@1 b= c@1 c=", "");
}

#[test]
fn one_sender_takes_no_more_than_its_share() {
    check("a@1 a=x b@1 b=x c@1 c=x d@1 d=y", "?");
    check("a@1 a=y a. b@1 b=x c@1 c=x c. d@1 d=x", "c");
    check("a@1 a=x b@1 b=x b- c@1 c=x", "");
}

#[test]
fn a_flood_from_one_address_takes_no_place_of_a_known_sender() {
    let mut port = Port::new();
    assert_eq!(port.plays("a@1 a+ a=x a. b@2"), "");
    for _ in 0..100 {
        port.plays("z@1 z+ later room y@1");
    }
    // Its request begins and ends as if nothing were, and who came before the flood still finishes.
    assert_eq!(port.plays("a! a. b+ b=y"), "");
    assert_eq!(port.places.proven, 2);
}

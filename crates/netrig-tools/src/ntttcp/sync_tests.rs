use proptest::prelude::*;

use super::*;

const MINUTE: LengthPolicy = LengthPolicy::AtLeast(Cycle::Seconds(60));

fn receiver(terms: LengthPolicy, many: bool, clients: Client) -> Receiver {
    let mut receiver = Receiver::new(terms, many);
    (0..clients).for_each(|client| receiver.connected(client));
    receiver
}

fn ask(receiver: &mut Receiver, client: Client, code: i32) -> Vec<Action> {
    receiver.bytes(client, &message(code))
}

fn reply(client: Client, code: i32) -> Action {
    Action::Reply(client, message(code))
}

#[test]
fn a_test_is_agreed_upon_and_begins() {
    let mut receiver = receiver(MINUTE, false, 1);
    assert_eq!(ask(&mut receiver, 0, QUERY), [reply(0, 11)]);
    assert_eq!(ask(&mut receiver, 0, 90), [reply(0, 90)]);
    assert_eq!(ask(&mut receiver, 0, START), [reply(0, START), Action::Begin(Cycle::Seconds(90))]);
    assert_eq!(ask(&mut receiver, 0, QUERY), [reply(0, 12)]);
    receiver.finished();
    assert_eq!(ask(&mut receiver, 0, QUERY), [reply(0, 13)]);
    assert_eq!(receiver.closed(0), []);
}

#[test]
fn the_longer_time_stands_and_endless_beats_all() {
    for (terms, proposed, agreed) in [
        (MINUTE, 1, 60),
        (MINUTE, 61, 61),
        (MINUTE, 0, 0),
        (LengthPolicy::AtLeast(Cycle::Endless), 5, 0),
        (LengthPolicy::AsProposed, 5, 5),
        (LengthPolicy::AsProposed, 0, 0),
    ] {
        let mut receiver = receiver(terms, false, 1);
        ask(&mut receiver, 0, QUERY);
        assert_eq!(ask(&mut receiver, 0, proposed), [reply(0, agreed)], "{terms:?} {proposed}");
    }
}

#[test]
fn lengths_that_look_like_commands_are_lengths() {
    for code in [QUERY, START, START_LAST, EXIT] {
        let mut receiver = receiver(LengthPolicy::AsProposed, false, 1);
        ask(&mut receiver, 0, QUERY);
        assert_eq!(ask(&mut receiver, 0, code), [reply(0, code)]);
        let begin = Action::Begin(Cycle::Seconds(code as u32));
        assert_eq!(ask(&mut receiver, 0, START), [reply(0, START), begin]);
        // The original would be confused, so no sender of ours says such a number.
        let (mut sender, _) = Sender::new(Cycle::Seconds(code as u32));
        assert_eq!(sender.bytes(&message(11)).unwrap(), [Event::Free { next: message(code + 1) }]);
    }
}

#[test]
fn several_clients_wait_for_the_last() {
    let mut receiver = receiver(MINUTE, true, 3);
    for client in 0..3 {
        ask(&mut receiver, client, QUERY);
        // The receiver's own time stands.
        assert_eq!(ask(&mut receiver, client, 999), [reply(client, 60)]);
    }
    assert_eq!(ask(&mut receiver, 0, START), [Action::Joined { waiting: 1 }, reply(0, WAIT)]);
    assert_eq!(ask(&mut receiver, 1, START), [Action::Joined { waiting: 2 }, reply(1, WAIT)]);
    let begin = Action::Begin(Cycle::Seconds(60));
    assert_eq!(ask(&mut receiver, 2, START_LAST), [reply(0, START), reply(1, START), reply(2, START), begin]);
    assert_eq!(receiver.closed(0), []);
    assert_eq!(receiver.closed(2), []);
    assert_eq!(receiver.closed(1), [Action::Deserted]);
}

#[test]
fn seats_are_counted_and_the_last_is_kept() {
    let mut receiver = receiver(MINUTE, true, 10);
    for client in 0..7 {
        ask(&mut receiver, client, START);
    }
    assert_eq!(ask(&mut receiver, 7, START), [reply(7, EXIT)]);
    // A sender leaves: there is room again.
    assert_eq!(receiver.closed(3), []);
    assert_eq!(ask(&mut receiver, 7, START)[1], reply(7, WAIT));
    assert!(ask(&mut receiver, 8, START_LAST).contains(&reply(8, START)));
}

#[test]
fn strangers_neither_stop_nor_restart_a_test() {
    let mut receiver = receiver(MINUTE, false, 2);
    ask(&mut receiver, 0, START);
    assert_eq!(ask(&mut receiver, 1, QUERY), [reply(1, 12)]);
    assert_eq!(ask(&mut receiver, 1, 1000), [reply(1, 1000)]);
    assert_eq!(ask(&mut receiver, 1, START), [reply(1, EXIT)]);
    assert_eq!(ask(&mut receiver, 1, EXIT), [reply(1, 12)]);
    assert_eq!(receiver.closed(1), []);
    assert_eq!(ask(&mut receiver, 0, EXIT), [Action::Stop(0), reply(0, 13)]);
    // The next test of a receiver that stays.
    receiver.renew();
    receiver.connected(1);
    assert_eq!(ask(&mut receiver, 1, QUERY), [reply(1, 11)]);
}

#[test]
fn a_last_client_without_others_is_refused_by_a_receiver_for_one() {
    let mut receiver = receiver(MINUTE, false, 1);
    assert_eq!(ask(&mut receiver, 0, START_LAST), [reply(0, EXIT)]);
    assert_eq!(receiver.state(), State::NotStarted);
}

#[test]
fn absurd_numbers_close_the_connection() {
    for code in [-1, i32::MIN, i32::MAX, LONGEST_CYCLE as i32 + 1] {
        let mut receiver = receiver(MINUTE, false, 1);
        assert_eq!(ask(&mut receiver, 0, code), [Action::Refuse(0, Refusal::Meaningless(code))]);
        assert_eq!(ask(&mut receiver, 0, QUERY), [], "a client that was sent away is not heard");
        let (mut sender, _) = Sender::new(Cycle::Seconds(5));
        sender.bytes(&message(11)).unwrap();
        assert!(sender.bytes(&message(code)).is_err());
    }
    let mut receiver = receiver(MINUTE, false, 1);
    let flood = message(QUERY).repeat(QUESTIONS as usize + 5);
    ask(&mut receiver, 0, START);
    let actions = receiver.bytes(0, &flood);
    let last = &actions[actions.len() - 2..];
    assert_eq!(last, [Action::Refuse(0, Refusal::TooManyQuestions), Action::Deserted]);
}

#[test]
fn the_sender_follows_the_receiver() {
    let (mut sender, hello) = Sender::new(Cycle::Seconds(30));
    assert_eq!(hello, message(QUERY));
    assert_eq!(sender.bytes(&message(13)).unwrap(), [Event::Free { next: message(30) }]);
    assert_eq!(sender.bytes(&message(60)).unwrap(), [Event::Agreed(Cycle::Seconds(60))]);
    assert_eq!(sender.start(true), message(START_LAST));
    assert_eq!(sender.bytes(&message(WAIT)).unwrap(), [Event::Wait]);
    assert_eq!(sender.bytes(&message(START)).unwrap(), [Event::Run]);
    // Said twice to the last client by the original.
    assert_eq!(sender.bytes(&message(START)).unwrap(), []);
    assert_eq!(sender.bytes(&message(13)).unwrap(), [Event::State(State::Finished)]);

    let (mut sender, _) = Sender::new(Cycle::Endless);
    assert_eq!(sender.bytes(&message(12)), Err(SenderError::Busy));
    let (mut sender, _) = Sender::new(Cycle::Seconds(1));
    let error = sender.bytes(b"HTTP").unwrap_err().to_string();
    assert!(error.contains("something else"), "{error}");
    let (mut sender, _) = Sender::new(Cycle::Seconds(1));
    sender.bytes(&[message(11), message(1)].concat()).unwrap();
    sender.start(false);
    assert_eq!(sender.bytes(&message(EXIT)), Err(SenderError::Refused));
    let (mut sender, _) = Sender::new(Cycle::Seconds(1));
    sender.bytes(&[message(11), message(1)].concat()).unwrap();
    assert!(sender.bytes(&message(START)).is_err(), "told to run before it asked");
}

proptest! {
    #[test]
    fn no_bytes_break_either_side(data in prop::collection::vec(any::<u8>(), 0..2000)) {
        fuzz(&data);
    }

    /// Random bytes hardly ever spell a command, so these do.
    #[test]
    fn no_sequence_of_commands_breaks_the_receiver(
        first in any::<u8>(),
        steps in prop::collection::vec((prop_oneof![20 => 0..128u8, 1 => 245..=255u8], prop_oneof![
            Just(QUERY), Just(START), Just(START_LAST), Just(EXIT), Just(0), 1..200i32, any::<i32>()
        ]), 0..200),
    ) {
        let mut data = vec![first];
        for (header, code) in steps {
            data.push(header);
            data.extend(&message(code)[..if header & 0x80 == 0 { 4 } else { 3 }]);
        }
        fuzz(&data);
    }

    #[test]
    fn messages_may_come_in_any_pieces(cuts in prop::collection::vec(1usize..5, 1..20)) {
        let script = [message(QUERY), message(7), message(START), message(QUERY)].concat();
        let mut whole = receiver(LengthPolicy::AsProposed, false, 1);
        let expected = whole.bytes(0, &script);
        let mut pieces = receiver(LengthPolicy::AsProposed, false, 1);
        let (mut rest, mut actions) = (script.as_slice(), Vec::new());
        for cut in cuts.into_iter().chain(std::iter::repeat(3)) {
            let (piece, after) = rest.split_at(cut.min(rest.len()));
            actions.extend(pieces.bytes(0, piece));
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        // The pieces see the reply between the beginning and the last question.
        prop_assert_eq!(actions.len(), expected.len());
        prop_assert!(actions.iter().all(|action| expected.contains(action)));
    }
}

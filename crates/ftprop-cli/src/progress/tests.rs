use std::io;
use std::sync::{Arc, Mutex};

use super::*;

#[derive(Clone, Default)]
struct Screen(Arc<Mutex<Vec<u8>>>);

impl Screen {
    fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut self.0.lock().unwrap())).unwrap()
    }
}

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn lines(epochs: u32, steps: usize) -> (Progress, Screen, Instant) {
    let (screen, start) = (Screen::default(), Instant::now());
    (Progress::with_sink(Sink::Lines(Box::new(screen.clone())), epochs, steps, start), screen, start)
}

fn line(epoch: u32) -> EpochLine {
    EpochLine {
        epoch,
        train: Score { loss: 1.25, accuracy: 0.5 },
        validation: None,
        test: Some(Score { loss: 1.5, accuracy: 0.0925 }),
        learning_rate: 0.001,
        images_per_s: 1234.5,
        of_a_rank: None,
        seconds: 8.0,
    }
}

#[test]
fn a_line_fits_its_terminal() {
    let validation = Some(Score { loss: 1.375, accuracy: 0.875 });
    let long = EpochLine { validation, ..line(3) };
    for (line, columns, shown) in [
        (line(3), 200, "epoch  3/10  train loss 1.2500 acc 50.00 %  test loss 1.5000 acc  9.25 %  rate 0.001  "),
        (line(3), 80, "epoch  3/10  train 50.00 %  test  9.25 %  8.0 s  1 min 12 s left"),
        (line(3), 60, "epoch  3/10  train 50.00 %  test  9.25 %  1 min 12 s left"),
        (long, 80, "epoch  3/10  train 50.00 %  val 87.50 %  test  9.25 %  8.0 s  1 min 12 s left"),
        (long, 60, "epoch  3/10  train 50.00 %  val 87.50 %  test  9.25 %"),
        (long, 40, "epoch  3/10  test  9.25 %"),
        (long, 20, "epoch  3/10  test  9"),
    ] {
        let found = line.fitted("epoch  3/10", "  1 min 12 s left", columns);
        assert!(found.starts_with(shown) && found.chars().count() <= columns, "{columns}: {found}");
    }
}

#[test]
fn a_short_epoch_is_one_line() {
    let (mut progress, screen, start) = lines(10, 80);
    for step in 1..=80 {
        progress.step_at(start + Duration::from_millis(100 * step as u64), step, (1.0, 0.5), &speed(1000.0, None));
    }
    assert_eq!(screen.take(), "");
    progress.epoch_done_at(start + Duration::from_secs(8), &line(1));
    assert_eq!(
        screen.take(),
        "epoch  1/10  train loss 1.2500 acc 50.00 %  test loss 1.5000 acc  9.25 %  \
         rate 0.001  1234 examples/s  8.0 s  1 min 12 s left\n"
    );
}

#[test]
fn a_long_epoch_speaks_every_ten_seconds() {
    let (mut progress, screen, start) = lines(2, 100);
    for step in 1..=100 {
        progress.step_at(start + Duration::from_millis(400 * step as u64), step, (0.25, 0.9), &speed(160.0, None));
    }
    let said = screen.take();
    let said: Vec<&str> = said.lines().collect();
    assert_eq!(said.len(), 4, "{said:?}");
    assert_eq!(said[1], "epoch 1/2  step 50/100  loss 0.2500  acc 90.00 %  160 examples/s  1 min 00 s left");
}

#[test]
fn lines_fit_a_terminal_that_cannot_draw() {
    let (mut progress, screen, start) = lines(2, 100);
    progress.room = Some(40);
    progress.step_at(start + Duration::from_secs(10), 50, (0.25, 0.9), &speed(160.0, None));
    progress.epoch_done_at(start + Duration::from_secs(20), &line(1));
    let said = screen.take();
    assert_eq!(said, "epoch 1/2  step 50/100  acc 90.00 %\nepoch 1/2  train 50.00 %  test  9.25 %\n");
}

#[test]
fn the_last_line_promises_nothing() {
    let (mut progress, screen, start) = lines(1, 10);
    progress.epoch_done_at(start + Duration::from_secs(8), &line(1));
    assert!(screen.take().ends_with("8.0 s\n"));
}

#[test]
fn a_resumed_run_counts_only_its_own_steps() {
    let (progress, screen, start) = lines(10, 100);
    let mut progress = progress.resumed(8, 50);
    progress.step_at(start + Duration::from_secs(10), 100, (1.0, 0.5), &speed(10.0, None));
    assert_eq!(screen.take(), "epoch  9/10  step 100/100  loss 1.0000  acc 50.00 %  10 examples/s  20 s left\n");
}

#[test]
fn jobs_without_epochs_carry_their_label() {
    let (mut progress, screen, start) = lines(1, 4);
    progress.label = Some("evaluating".to_owned());
    progress.step_at(start + Duration::from_secs(10), 2, (1.0, 0.5), &speed(10.0, None));
    assert!(screen.take().starts_with("evaluating  step 2/4  loss 1.0000"));
}

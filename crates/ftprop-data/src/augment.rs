//! Crops and flips, and which random number decides which.
//!
//! For epoch e, `Stream::new(seed, Purpose::Augment, e)` is forked at the example's number (its place among
//! the examples as read, see [`Split`](crate::Split), whatever was held out and whatever the order). Of that
//! fork `own`,
//!
//! | number | decides |
//! | --- | --- |
//! | `own.below(0, room.y + 1)` | the row of the padded picture where the window begins |
//! | `own.below(1, room.x + 1)` | the column |
//! | `own.u64(2) >> 63` | 1: the window is mirrored left to right |
//!
//! A number that decides nothing (no crop, no flip) is not read, and the others stay the same. The padded
//! picture has `pad` rows and columns of black (raw value 0, before normalising) on every side; `room` is how
//! far the window can move in it. Without a random crop the window lies at half the room, rounded down.
//! The order of the examples is another purpose's stream, see [`Loader`](crate::Loader).

use ftprop_tensor::random::Stream;

/// What is done to training pictures. The default does nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Augment {
    /// Rows and columns of black added on every side.
    pub pad: usize,
    /// Put the window at a random place, not in the centre.
    pub crop: bool,
    /// Mirror every other picture, at random.
    pub flip: bool,
}

impl Augment {
    /// For CIFAR: pad with 4 pixels, crop at random, flip.
    pub const CIFAR: Augment = Augment { pad: 4, crop: true, flip: true };
    /// For photos: crop at random, flip.
    pub const PHOTOS: Augment = Augment { pad: 0, crop: true, flip: true };
}

/// How far a window can move in a padded picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Columns to the right.
    pub x: usize,
    /// Rows down.
    pub y: usize,
}

/// Where a window begins in a padded picture, and whether it is mirrored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Its first column.
    pub x: usize,
    /// Its first row.
    pub y: usize,
    /// Whether left and right change places.
    pub flip: bool,
}

impl Placement {
    /// Where the window of an example lies. The stream is that of the seed and the epoch.
    ///
    /// ```
    /// use ftprop_data::{Augment, Placement, Room};
    /// use ftprop_tensor::random::{Purpose, Stream};
    ///
    /// let room = Room { x: 8, y: 8 };
    /// let stream = Stream::new(7, Purpose::Augment, 1);
    /// let own = stream.fork(41);
    /// let placed = Placement::of(stream, 41, &Augment::CIFAR, room);
    /// assert_eq!(placed.y as u64, own.below(0, 9));
    /// assert_eq!(placed.x as u64, own.below(1, 9));
    /// assert_eq!(placed.flip, own.u64(2) >> 63 == 1);
    /// ```
    pub fn of(stream: Stream, example: usize, augment: &Augment, room: Room) -> Self {
        let own = stream.fork(example as u64);
        let mut placed = Placement::centre(room);
        if augment.crop {
            placed.y = own.below(0, room.y as u64 + 1) as usize;
            placed.x = own.below(1, room.x as u64 + 1) as usize;
        }
        placed.flip = augment.flip && own.u64(2) >> 63 == 1;
        placed
    }

    /// The centre, for tests and predictions.
    pub fn centre(room: Room) -> Self {
        Placement { x: room.x / 2, y: room.y / 2, flip: false }
    }
}

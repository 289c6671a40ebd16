//! Crops, flips and colours, and which random number decides which.
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
//! | `own.below(3, height)`, `own.below(4, width)` | the middle of the square that is blanked |
//! | `own.uniform(5)`, `(6)`, `(7)` | how much brighter, more contrasty, more colourful, see [`Colours`] |
//! | `own.below(100, 14)`, `(101)`, `(102)` | which operation of TrivialAugment, how strong, in which direction |
//! | `own.uniform(8 + 2t)`, `own.u64(9 + 2t)` | area and proportions of a random part in its try t, see [`Patch`] |
//!
//! Where mirrored pictures alternate, the third number comes from the stream of epoch 2⁶⁴ − 1, the same in every epoch,
//! and its answer is turned round in odd epochs: whatever an example showed in one epoch, it shows the other side in the
//! next.
//!
//! A number that decides nothing (no crop, no flip) is not read, and the others stay the same. The padded
//! picture has `pad` rows and columns on every side: of black (raw value 0, before normalising), or of the picture
//! mirrored at its edge; `room` is how far the window can move in it. Without a random crop the window lies at half the
//! room, rounded down. What is blanked has the value 0 after normalising.
//! A random part of the picture (`area`) takes the place of the window: it is brought to the window's size, and the first two
//! numbers say where in the picture it lies.
//! The order of the examples is another purpose's stream, see [`Loader`](crate::Loader).

use crate::colours::{Colours, Jitter};
use crate::patch::Patch;
use crate::{DataError, Shape};
use ftprop_tensor::random::{Purpose, Stream};

/// What is done to training pictures. The default does nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Augment {
    /// Rows and columns added on every side.
    pub pad: usize,
    /// What is added is the picture mirrored at its edge, not black.
    pub reflect: bool,
    /// Put the window at a random place, not in the centre.
    pub crop: bool,
    /// Mirror every other picture, at random.
    pub flip: bool,
    /// With `flip`: show the other side in every other epoch, not at random.
    pub alternate: bool,
    /// The side of a square that is blanked at a random place; it may reach over the edge.
    pub cutout: usize,
    /// Show a random part of the picture, of between the first and the second of these shares of its area, at the
    /// window's size.
    pub area: Option<[f32; 2]>,
    /// How far colours may change.
    pub jitter: Jitter,
    /// Do one more thing of fourteen to each picture, at random: TrivialAugment.
    pub trivial: bool,
}

impl Augment {
    /// For CIFAR: pad with 4 pixels, crop at random, flip.
    pub const CIFAR: Augment = Augment {
        pad: 4,
        reflect: false,
        crop: true,
        flip: true,
        alternate: false,
        cutout: 0,
        area: None,
        jitter: Jitter::NONE,
        trivial: false,
    };
    /// For photos: crop at random, flip.
    pub const PHOTOS: Augment = Augment { pad: 0, ..Augment::CIFAR };

    /// Whether all that is done to a picture is to cut a window out of it, mirror it and blank a part.
    pub fn is_plain(&self) -> bool {
        self.area.is_none() && self.jitter.is_none() && !self.trivial
    }

    /// Checks what does not depend on the pictures.
    pub(crate) fn check(&self, window: Shape) -> Result<(), DataError> {
        let refused = |why: &str| Err(DataError::Option(why.into()));
        if self.alternate && !self.flip {
            return refused("flips can only alternate where there are flips");
        }
        if let Some([least, most]) = self.area {
            if !(least > 0.0 && least <= most && most <= 1.0) {
                return refused(
                    "a random part's shares of the area (`area`) go from above 0 to 1, the smaller one first",
                );
            }
            if !matches!(window.channels, 1 | 3) {
                return refused("a random part (`area`) is one of a grey or an RGB picture");
            }
            if self.pad > 0 || self.crop {
                return refused(
                    "a random part (`area`) takes the place of padding and of a random crop; leave those out",
                );
            }
        }
        if self.trivial && !matches!(window.channels, 1 | 3) {
            return refused("TrivialAugment is for grey and RGB pictures");
        }
        self.jitter.check(window.channels)
    }
}

/// How far a window can move in a padded picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Columns to the right.
    pub x: usize,
    /// Rows down.
    pub y: usize,
}

/// The random numbers of an epoch.
#[derive(Clone, Copy, Debug)]
pub struct Draws {
    epoch: u64,
    own: Stream,
    flips: Stream,
}

impl Draws {
    /// Those of a seed and an epoch.
    pub fn new(seed: u64, epoch: u64) -> Self {
        let stream = |epoch| Stream::new(seed, Purpose::Augment, epoch);
        Draws { epoch, own: stream(epoch), flips: stream(u64::MAX) }
    }

    /// Those of one example.
    pub(crate) fn of(&self, example: usize) -> Stream {
        self.own.fork(example as u64)
    }
}

/// Where a window begins in a padded picture, whether it is mirrored, what of it is blanked, and its colours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Placement {
    /// Its first column.
    pub x: usize,
    /// Its first row.
    pub y: usize,
    /// Whether left and right change places.
    pub flip: bool,
    /// Row and column of the window in the middle of what is blanked.
    pub blank: Option<[usize; 2]>,
    /// How its colours change.
    pub colours: Option<Colours>,
}

impl Placement {
    /// Where the window of an example lies.
    ///
    /// ```
    /// use ftprop_data::{Augment, Draws, Placement, Room, Shape};
    /// use ftprop_tensor::random::{Purpose, Stream};
    ///
    /// let (room, window) = (Room { x: 8, y: 8 }, Shape::new(32, 32, 3));
    /// let own = Stream::new(7, Purpose::Augment, 1).fork(41);
    /// let placed = Placement::of(&Draws::new(7, 1), 41, &Augment::CIFAR, room, window);
    /// assert_eq!(placed.y as u64, own.below(0, 9));
    /// assert_eq!(placed.x as u64, own.below(1, 9));
    /// assert_eq!(placed.flip, own.u64(2) >> 63 == 1);
    /// ```
    pub fn of(draws: &Draws, example: usize, augment: &Augment, room: Room, window: Shape) -> Self {
        let own = draws.of(example);
        let mut placed = Placement::centre(room);
        if augment.crop {
            placed.y = own.below(0, room.y as u64 + 1) as usize;
            placed.x = own.below(1, room.x as u64 + 1) as usize;
        }
        if augment.flip {
            placed.flip = match augment.alternate {
                false => own.u64(2) >> 63 == 1,
                true => (draws.flips.fork(example as u64).u64(2) >> 63) ^ (draws.epoch & 1) == 1,
            };
        }
        if augment.cutout > 0 {
            let below = |number, most: usize| own.below(number, most as u64) as usize;
            placed.blank = Some([below(3, window.height), below(4, window.width)]);
        }
        placed.colours = augment.jitter.draw(own);
        placed
    }

    /// The part of an example's picture of this height and width that is shown, where that is a random one.
    pub fn patch(draws: &Draws, example: usize, augment: &Augment, height: usize, width: usize) -> Option<Patch> {
        augment.area.map(|area| Patch::draw(draws.of(example), area, height, width))
    }

    /// The centre, for tests and predictions.
    pub fn centre(room: Room) -> Self {
        Placement { x: room.x / 2, y: room.y / 2, flip: false, blank: None, colours: None }
    }
}

//! What of a picture is shown: the window, or a random part at the window's size, out of the picture as it is or resized.

use crate::Shape;
use crate::augment::{Augment, Draws, Placement, Room};
use crate::resize::{self, Axis, Rows};
use crate::sizes::cover;
use crate::window::Cutter;

/// A picture in memory: rows of pixels of as many bytes as the window has channels.
pub(crate) struct Picture<'a> {
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) pixels: &'a [u8],
}

/// Who chooses what is shown.
pub(crate) enum Chosen<'a> {
    /// The centre, for predictions.
    Centre,
    /// The example's random numbers.
    Drawn { draws: &'a Draws, number: usize, augment: &'a Augment },
}

impl Chosen<'_> {
    /// Where the window lies, given the room that there is.
    pub(crate) fn place(&self, room: Room, window: Shape) -> Placement {
        match *self {
            Chosen::Centre => Placement::centre(room),
            Chosen::Drawn { draws, number, augment } => Placement::of(draws, number, augment, room, window),
        }
    }
}

/// What a thread keeps between pictures.
#[derive(Default)]
pub(crate) struct Viewer {
    resized: Vec<u8>,
    rows: Rows,
}

impl Viewer {
    /// Writes what is shown of a picture, after its shorter edge was resized where that is asked for. A random part is
    /// cut from the picture as it is: it gets another size anyway.
    pub(crate) fn show(
        &mut self,
        picture: &Picture<'_>,
        resize: Option<usize>,
        cutter: &Cutter,
        chosen: &Chosen<'_>,
        out: &mut [f32],
    ) -> Result<(), String> {
        let (window, &Picture { height, width, pixels }) = (cutter.window(), picture);
        let (rows, columns, placed) = view(picture, resize, cutter, chosen)?;
        if rows.is_plain() && columns.is_plain() {
            let placed = Placement { x: columns.origin + columns.start, y: rows.origin + rows.start, ..placed };
            cutter.cut(pixels, height, width, placed, out);
            return Ok(());
        }
        // Only the window is ever made; it is then cut whole.
        self.resample(picture, window.channels, rows, columns);
        cutter.cut(&self.resized, window.height, window.width, placed, out);
        Ok(())
    }

    /// The same before it is mirrored, blanked, coloured and normalised: the window's bytes. There is no padding.
    pub(crate) fn show_pixels(
        &mut self,
        picture: &Picture<'_>,
        resize: Option<usize>,
        cutter: &Cutter,
        chosen: &Chosen<'_>,
        out: &mut [u8],
    ) -> Result<(), String> {
        let (rows, columns, _) = view(picture, resize, cutter, chosen)?;
        let channels = cutter.window().channels;
        if !(rows.is_plain() && columns.is_plain()) {
            out.copy_from_slice(self.resample(picture, channels, rows, columns));
            return Ok(());
        }
        let (first, left) = (rows.origin + rows.start, columns.origin + columns.start);
        for (row, out) in out.chunks_exact_mut(columns.count * channels).enumerate() {
            let at = ((first + row) * picture.width + left) * channels;
            out.copy_from_slice(&picture.pixels[at..at + out.len()]);
        }
        Ok(())
    }

    /// A part of a picture at another size.
    pub(crate) fn resample(&mut self, picture: &Picture<'_>, channels: usize, rows: Axis, columns: Axis) -> &[u8] {
        let &Picture { width, pixels, .. } = picture;
        match channels {
            1 => resize::resize::<1>(pixels, width, rows, columns, &mut self.rows, &mut self.resized),
            _ => resize::resize::<3>(pixels, width, rows, columns, &mut self.rows, &mut self.resized),
        }
        &self.resized
    }
}

/// Which part of a picture is shown at which size, and what is done to that: the window lies at its beginning.
fn view(
    picture: &Picture<'_>,
    resize: Option<usize>,
    cutter: &Cutter,
    chosen: &Chosen<'_>,
) -> Result<(Axis, Axis, Placement), String> {
    let (window, &Picture { height, width, .. }) = (cutter.window(), picture);
    let part = match *chosen {
        Chosen::Drawn { draws, number, augment } => Placement::patch(draws, number, augment, height, width),
        Chosen::Centre => None,
    };
    if let Some(part) = part {
        let axis = |origin, from, to| Axis { origin, from, to, start: 0, count: to };
        let placed = chosen.place(Room { x: 0, y: 0 }, window);
        return Ok((axis(part.y, part.height, window.height), axis(part.x, part.width, window.width), placed));
    }
    let (new_height, new_width) = match resize {
        Some(edge) => cover(height, width, window, edge)
            .ok_or_else(|| format!("{width}×{height} pixels are too long and thin to be resized to {edge}"))?,
        None => (height, width),
    };
    let placed = chosen.place(cutter.room(new_height, new_width), window);
    let rows = Axis::whole(height, new_height, placed.y, window.height);
    let columns = Axis::whole(width, new_width, placed.x, window.width);
    Ok((rows, columns, Placement { x: 0, y: 0, ..placed }))
}

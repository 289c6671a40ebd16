//! JPEG pictures at a half, a quarter or an eighth of their size.
//!
//! A camera's photograph has many times the pixels that a network sees. A block of a JPEG is eight by eight waves; leaving
//! the short ones out gives the block at a smaller size without ever making the large one.

use image::{DynamicImage, GrayImage, RgbImage};
use jpeg_decoder::{Decoder, PixelFormat};

/// The picture at the smallest size whose sides are both at least `least` long. Nothing where that is the size it has, or
/// where this decoder does not know the file: the other one then says what is wrong, if anything is.
pub(crate) fn decode(file: &[u8], size: [u16; 2], least: usize, room: u64) -> Option<DynamicImage> {
    let smaller = reduced(size, least)?;
    let mut decoder = Decoder::new(file);
    decoder.set_max_decoding_buffer_size(usize::try_from(room).ok()?);
    decoder.read_info().ok()?;
    let info = decoder.info()?;
    if [info.width, info.height] != size || !matches!(info.pixel_format, PixelFormat::L8 | PixelFormat::RGB24) {
        return None;
    }
    let (width, height) = decoder.scale(smaller[0], smaller[1]).ok()?;
    let bytes = decoder.decode().ok()?;
    let (width, height) = (u32::from(width), u32::from(height));
    match info.pixel_format {
        PixelFormat::L8 => GrayImage::from_raw(width, height, bytes).map(DynamicImage::from),
        _ => RgbImage::from_raw(width, height, bytes).map(DynamicImage::from),
    }
}

/// Width and height divided by the largest of 8, 4 and 2 that leaves both sides long enough, rounded up.
fn reduced(size: [u16; 2], least: usize) -> Option<[u16; 2]> {
    [8, 4, 2]
        .into_iter()
        .map(|by| size.map(|side| side.div_ceil(by)))
        .find(|sides| sides.iter().all(|&s| usize::from(s) >= least))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{self, WHOLE};
    use std::io::Cursor;

    fn encoded(picture: &DynamicImage) -> Vec<u8> {
        let mut file = Cursor::new(Vec::new());
        picture.write_to(&mut file, image::ImageFormat::Jpeg).unwrap();
        file.into_inner()
    }

    /// Colours that change slowly, so that every way of making it smaller agrees.
    fn slope(width: u32, height: u32) -> DynamicImage {
        RgbImage::from_fn(width, height, |x, y| image::Rgb([(255 * x / width) as u8, (255 * y / height) as u8, 90]))
            .into()
    }

    #[test]
    fn sides_stay_as_long_as_is_needed() {
        assert_eq!(reduced([4000, 3000], 256), Some([500, 375]));
        assert_eq!(reduced([4000, 3000], 375), Some([500, 375]));
        assert_eq!(reduced([4000, 3000], 376), Some([1000, 750]));
        assert_eq!(reduced([3001, 4003], 1501), Some([1501, 2002]));
        assert_eq!(reduced([3001, 4003], 1502), None);
        assert_eq!(reduced([500, 375], 256), None);
        assert_eq!(reduced([u16::MAX, u16::MAX], WHOLE), None);
    }

    #[test]
    fn a_reduced_picture_is_the_whole_one_made_smaller() {
        for (width, height, least) in [(640, 480, 60), (641, 479, 100), (333, 517, 166), (96, 64, 8)] {
            let file = encoded(&slope(width, height));
            let (h, w, bytes) = decode::decode(&file, 3, false, least).unwrap();
            let by = (height as f32 / h as f32).round() as u32;
            assert!(by > 1 && h.min(w) >= least && (w as u32, h as u32) == (width.div_ceil(by), height.div_ceil(by)));
            let (_, _, whole) = decode::decode(&file, 3, false, WHOLE).unwrap();
            let mean = |x: usize, y: usize, c: usize| {
                let rows = (y as u32 * by..((y as u32 + 1) * by).min(height)).flat_map(|row| {
                    (x as u32 * by..((x as u32 + 1) * by).min(width)).map(move |column| (row * width + column) as usize)
                });
                let values: Vec<f32> = rows.map(|at| f32::from(whole[3 * at + c])).collect();
                values.iter().sum::<f32>() / values.len() as f32
            };
            for (at, &byte) in bytes.iter().enumerate() {
                let (pixel, c) = (at / 3, at % 3);
                let expected = mean(pixel % w, pixel / w, c);
                assert!(
                    (f32::from(byte) - expected).abs() < 6.0,
                    "{width}×{height} by {by} at {pixel}: {byte}, {expected}"
                );
            }
        }
    }

    #[test]
    fn grey_pictures_are_reduced_too() {
        let grey = encoded(&DynamicImage::from(slope(320, 240).to_luma8()));
        let (height, width, bytes) = decode::decode(&grey, 1, false, 60).unwrap();
        assert_eq!((height, width, bytes.len()), (60, 80, 60 * 80));
    }

    #[test]
    fn what_lacks_data_is_refused_at_every_size() {
        let mut file = encoded(&slope(640, 480));
        file.truncate(file.len() / 2);
        assert!(decode::decode(&file, 3, false, 60).is_err());
        file.extend([0xff, 0xd9]);
        assert!(decode::decode(&file, 3, false, 60).is_err());
    }
}

//! Pictures from bytes, whoever made them: decoded within limits, the right way up, and whole or not at all.

use std::fs::File;
use std::io::{BufReader, Cursor};
use std::path::Path;

use image::metadata::Orientation;
use image::{DynamicImage, GrayImage, ImageDecoder, ImageFormat, ImageReader, Limits, RgbImage};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use crate::{jpeg_reduced, jpeg_scan};

/// The formats that are read, by the ends of their files' names.
pub(crate) const EXTENSIONS: [&str; 8] = ["jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "tiff"];

/// Bytes that a picture may take while it is decoded, whatever the size of its file. A header can claim any size.
const LEAST_ROOM: u64 = 192 << 20;
/// The same for large files, and how many times its size a file may take up to there.
const MOST_ROOM: u64 = 512 << 20;
const MOST_TIMES: u64 = 64;

/// No picture has sides so long, so none is reduced for this.
#[cfg(test)]
pub(crate) const WHOLE: usize = usize::MAX;

/// Bytes that a file of so many bytes may take while it is decoded.
fn room(file: &[u8]) -> u64 {
    (file.len() as u64 * MOST_TIMES).clamp(LEAST_ROOM, MOST_ROOM)
}

/// Height, width and bytes of an encoded picture, grey or RGB. Whether a JPEG has all its data takes a third of the time
/// to find out, so whoever knows already says so. It may come at a half, a quarter or an eighth of its size where both
/// sides stay at least `least` pixels long.
pub(crate) fn decode(
    file: &[u8],
    channels: usize,
    known_whole: bool,
    least: usize,
) -> Result<(usize, usize, Vec<u8>), String> {
    let mut reader = ImageReader::new(Cursor::new(file)).with_guessed_format().map_err(|why| why.to_string())?;
    let mut picture = match reader.format() {
        None => return Err(format!("it is neither JPEG nor PNG, WebP, BMP, GIF or TIFF ({} bytes)", file.len())),
        Some(ImageFormat::Jpeg) => jpeg(file, known_whole, least)?,
        Some(_) => {
            let mut limits = Limits::default();
            limits.max_alloc = Some(room(file));
            reader.limits(limits);
            let mut decoder = reader.into_decoder().map_err(|why| why.to_string())?;
            let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
            check_room(decoder.total_bytes(), file)?;
            let mut picture = DynamicImage::from_decoder(decoder).map_err(|why| why.to_string())?;
            picture.apply_orientation(orientation);
            picture
        }
    };
    let (height, width) = (picture.height() as usize, picture.width() as usize);
    if height == 0 || width == 0 {
        return Err("it has no pixels".into());
    }
    // What is converted is not needed any more.
    match (channels, std::mem::take(&mut picture)) {
        (1, picture) => Ok((height, width, picture.into_luma8().into_raw())),
        (3, picture) => Ok((height, width, picture.into_rgb8().into_raw())),
        _ => Err(format!("a picture has 1 or 3 channels, the network wants {channels}")),
    }
}

/// Height and width of a picture's file, not yet turned the right way up, by its header alone; none where that says nothing.
pub(crate) fn size(path: &Path) -> Option<(usize, usize)> {
    let reader = ImageReader::open(path).ok()?.with_guessed_format().ok()?;
    // The other decoder of JPEG reads the whole file for it.
    let (width, height) = if reader.format() == Some(ImageFormat::Jpeg) {
        let mut decoder = JpegDecoder::new(BufReader::new(File::open(path).ok()?));
        decoder.decode_headers().ok()?;
        decoder.dimensions()?
    } else {
        let (width, height) = reader.into_dimensions().ok()?;
        (width as usize, height as usize)
    };
    Some((height, width))
}

fn check_room(bytes: u64, file: &[u8]) -> Result<(), String> {
    if bytes > room(file) {
        return Err(format!("its header claims {bytes} bytes of pixels, more than {} are read", room(file)));
    }
    Ok(())
}

/// A JPEG. Where data are missing the decoder fills the rest with something and says nothing, so that is looked for.
fn jpeg(file: &[u8], known_whole: bool, least: usize) -> Result<DynamicImage, String> {
    if !jpeg_is_whole(file) {
        return Err("the file is truncated".into());
    }
    let options = DecoderOptions::default().set_strict_mode(false).set_max_width(1 << 16).set_max_height(1 << 16);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(file), options);
    decoder.decode_headers().map_err(|why| why.to_string())?;
    let (Some(info), Some(stored)) = (decoder.info(), decoder.input_colorspace()) else {
        return Err("it has no header".into());
    };
    let kept = if stored == ColorSpace::Luma { ColorSpace::Luma } else { ColorSpace::RGB };
    // A progressive picture is collected as numbers of 16 bits before it becomes bytes.
    let times = if info.sof.is_sequential_dct() { 1 } else { 3 };
    let pixels = u64::from(info.width) * u64::from(info.height);
    check_room(pixels * times * u64::from(info.components.max(3)), file)?;
    if !known_whole && jpeg_scan::lacks_data(file) {
        return Err("a part of its data is missing".into());
    }
    let (width, height) = (u32::from(info.width), u32::from(info.height));
    let mut picture = match jpeg_reduced::decode(file, [info.width, info.height], least, room(file)) {
        Some(picture) => picture,
        None => {
            decoder.set_options(options.jpeg_set_out_colorspace(kept));
            let bytes = decoder.decode().map_err(|why| why.to_string())?;
            let picture = match kept {
                ColorSpace::Luma => GrayImage::from_raw(width, height, bytes).map(DynamicImage::from),
                _ => RgbImage::from_raw(width, height, bytes).map(DynamicImage::from),
            };
            picture.ok_or("the decoder gave too few pixels")?
        }
    };
    if let Some(orientation) = decoder.exif().and_then(|exif| Orientation::from_exif_chunk(exif)) {
        picture.apply_orientation(orientation);
    }
    Ok(picture)
}

/// Whether the last marker of consequence ends the image.
fn jpeg_is_whole(file: &[u8]) -> bool {
    const START_OF_SCAN: [u8; 2] = [0xff, 0xda];
    const END_OF_IMAGE: [u8; 2] = [0xff, 0xd9];
    let last = file.windows(2).rev().find(|&marker| marker == START_OF_SCAN || marker == END_OF_IMAGE);
    last == Some(&END_OF_IMAGE[..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(format: ImageFormat, picture: &DynamicImage) -> Vec<u8> {
        let mut file = Cursor::new(Vec::new());
        picture.write_to(&mut file, format).unwrap();
        file.into_inner()
    }

    /// Wider than high, dark on the left, bright on the right.
    fn slope() -> DynamicImage {
        RgbImage::from_fn(24, 16, |x, y| image::Rgb([10 * x as u8, 255 - 10 * x as u8, 8 * y as u8])).into()
    }

    #[test]
    fn every_format_is_read() {
        let picture = slope();
        for format in [ImageFormat::Png, ImageFormat::WebP, ImageFormat::Bmp, ImageFormat::Tiff] {
            let decoded = decode(&encoded(format, &picture), 3, false, WHOLE).unwrap();
            assert!(decoded == (16, 24, picture.to_rgb8().into_raw()), "{format:?}");
        }
        for format in [ImageFormat::Jpeg, ImageFormat::Gif] {
            let (height, width, bytes) = decode(&encoded(format, &picture), 3, false, WHOLE).unwrap();
            let far = bytes.iter().zip(picture.to_rgb8().as_raw()).filter(|(a, b)| a.abs_diff(**b) > 40).count();
            assert!((height, width) == (16, 24) && far < bytes.len() / 20, "{format:?}: {far}");
        }
        assert_eq!(
            decode(&encoded(ImageFormat::Png, &picture), 1, false, WHOLE).unwrap().2,
            picture.to_luma8().into_raw()
        );
    }

    #[test]
    fn every_header_says_how_large_its_picture_is() {
        let path = std::env::temp_dir().join(format!("ftprop-size-{}", std::process::id()));
        use ImageFormat::{Bmp, Gif, Jpeg, Png, Tiff, WebP};
        for format in [Png, WebP, Bmp, Tiff, Jpeg, Gif] {
            let file = encoded(format, &slope());
            std::fs::write(&path, &file).unwrap();
            assert_eq!(size(&path), Some((16, 24)), "{format:?}");
            std::fs::write(&path, &file[..9]).unwrap();
            assert_eq!(size(&path), None, "{format:?}");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(size(&path), None);
    }

    #[test]
    fn a_jpeg_is_what_the_image_crate_makes_of_it() {
        for picture in [slope(), slope().to_luma8().into()] {
            let file = encoded(ImageFormat::Jpeg, &picture);
            let expected = image::load_from_memory(&file).unwrap().into_rgb8().into_raw();
            assert_eq!(decode(&file, 3, false, WHOLE).unwrap().2, expected);
        }
    }

    /// A JPEG with an Exif header that says how the camera was held.
    fn turned(orientation: u8) -> Vec<u8> {
        let mut exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
        exif.extend([orientation, 0, 0, 0, 0, 0, 0, 0]);
        let mut file = encoded(ImageFormat::Jpeg, &slope());
        let length = (exif.len() as u16 + 2).to_be_bytes();
        file.splice(2..2, [&[0xff, 0xe1], &length[..], &exif].concat());
        file
    }

    #[test]
    fn a_camera_held_upright_gives_upright_pictures() {
        let upright = decode(&turned(1), 3, false, WHOLE).unwrap();
        assert_eq!((upright.0, upright.1), (16, 24));
        let (height, width, pixels) = decode(&turned(6), 3, false, WHOLE).unwrap();
        assert_eq!((height, width), (24, 16));
        // Turned clockwise by a quarter: what was left is at the top.
        for (y, x) in [(0, 0), (5, 3), (23, 15)] {
            let from = ((15 - x) * 24 + y) * 3;
            assert_eq!(pixels[(y * 16 + x) * 3..][..3], upright.2[from..from + 3]);
        }
    }

    /// Grey noise of this size as a JPEG, and where its data begin.
    fn noisy(width: u32, height: u32) -> (Vec<u8>, usize) {
        let noise = ftprop_tensor::random::Stream::numbered(3);
        let pixel = |x: u32, y: u32| image::Rgb([noise.below(u64::from(y * width + x), 256) as u8; 3]);
        let file = encoded(ImageFormat::Jpeg, &RgbImage::from_fn(width, height, pixel).into());
        let scan = file.windows(2).position(|marker| marker == [0xff, 0xda]).unwrap() + 14;
        (file, scan)
    }

    #[test]
    fn a_jpeg_without_all_its_data_is_no_picture() {
        for (width, height) in [(64, 64), (8, 8), (100, 9), (9, 100)] {
            let (whole, scan) = noisy(width, height);
            assert!(decode(&whole, 3, false, WHOLE).is_ok() && !jpeg_scan::lacks_data(&whole));
            for left in [0, 2, 5, 8] {
                let mut cut = whole.clone();
                cut.drain(scan + (whole.len() - scan) * left / 10..whole.len() - 2);
                let why = decode(&cut, 3, false, WHOLE).err();
                assert_eq!(why.as_deref(), Some("a part of its data is missing"), "{width}×{height}, {left} tenths");
            }
            // Without its end marker it is simply cut off.
            assert_eq!(
                decode(&whole[..whole.len() / 2], 3, false, WHOLE).err().as_deref(),
                Some("the file is truncated")
            );
        }
        // Flat pictures are whole, and cameras fill the space between headers.
        let flat = encoded(ImageFormat::Jpeg, &RgbImage::new(33, 65).into());
        assert!(decode(&flat, 3, false, WHOLE).is_ok());
        let mut padded = flat.clone();
        let first = 4 + usize::from(u16::from_be_bytes([flat[4], flat[5]]));
        padded.splice(first..first, [0; 9]);
        assert!(decode(&padded, 3, false, WHOLE) == decode(&flat, 3, false, WHOLE));
    }

    #[test]
    fn a_header_that_claims_too_much_is_refused() {
        let mut png = encoded(ImageFormat::Png, &slope());
        png[16..24].copy_from_slice(&[0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff]);
        let mut crc = flate2::Crc::new();
        crc.update(&png[12..29]);
        let sum = crc.sum().to_be_bytes();
        png[29..33].copy_from_slice(&sum);
        let mut bmp = encoded(ImageFormat::Bmp, &slope());
        bmp[18..26].copy_from_slice(&[0xff, 0xff, 0, 0, 0xff, 0xff, 0, 0]);
        let mut gif = encoded(ImageFormat::Gif, &slope());
        gif[6..10].fill(0xff);
        let mut jpeg = encoded(ImageFormat::Jpeg, &slope());
        let frame = jpeg.windows(2).position(|marker| marker == [0xff, 0xc0]).unwrap();
        jpeg[frame + 5..frame + 9].fill(0xff);
        for (name, file) in [("png", png), ("bmp", bmp), ("gif", gif), ("jpeg", jpeg)] {
            assert!(decode(&file, 3, false, WHOLE).is_err(), "{name}");
        }
    }

    #[test]
    fn a_truncated_jpeg_is_noticed() {
        assert!(jpeg_is_whole(&[0xff, 0xda, 1, 2, 0xff, 0xd9, 0]));
        assert!(!jpeg_is_whole(&[0xff, 0xd9, 0xff, 0xda, 1, 2]));
        assert!(!jpeg_is_whole(&[]));
    }
}

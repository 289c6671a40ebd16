use super::*;

fn run(name: &str, epochs: u32, best: f64) -> Curves {
    let point = |epoch: u32| {
        let left = (-f64::from(epoch) / 20.0).exp();
        EpochPoint {
            epoch,
            train_accuracy: best + 0.05 - left * 0.5,
            train_loss: 0.5 + left,
            test_accuracy: Some(best - left * 0.5),
            test_loss: Some(0.6 + left),
        }
    };
    Curves { name: name.into(), epochs: (1..=epochs).map(point).collect() }
}

/// The colour of the pixel at `(x, y)`, in shares of the picture's width and height.
fn pixel(png: &[u8], x: f64, y: f64) -> [u8; 3] {
    let pixmap = tiny_skia::Pixmap::decode_png(png).unwrap();
    let (x, y) = (f64::from(pixmap.width()) * x, f64::from(pixmap.height()) * y);
    let colour = pixmap.pixel(x as u32, y as u32).unwrap();
    [colour.red(), colour.green(), colour.blue()]
}

#[test]
fn one_run_has_a_dashed_and_a_solid_line_of_one_colour() {
    let svg = curves(&[run("digits", 30, 0.9)], &CurveOptions::default()).svg();
    let lines: Vec<&str> = svg.lines().filter(|line| line.contains("stroke=\"#0072b2\"")).collect();
    // Each once in the axes and once in the legend.
    assert_eq!(lines.len(), 4, "{svg}");
    assert_eq!(lines.iter().filter(|line| line.contains("stroke-dasharray")).count(), 2);
    assert!(svg.contains(">train</text>") && svg.contains(">test</text>") && svg.contains(">accuracy (%)</text>"));
    assert!(!svg.contains(">digits</text>"));
}

#[test]
fn many_runs_are_told_apart_by_name() {
    let runs = [run("sign", 30, 0.8), run("qReLU <3>", 30, 0.9)];
    let svg = curves(&runs, &CurveOptions { losses: true, ..CurveOptions::default() }).svg();
    assert!(svg.contains(">sign</text>") && svg.contains(">qReLU &lt;3&gt;</text>"));
    assert!(svg.contains(">loss</text>"));
    assert_eq!(svg.matches(">train</text>").count(), 1);
}

#[test]
fn the_inset_appears_only_where_there_is_more_than_it_shows() {
    let options = CurveOptions { zoom_last: Some(100), ..CurveOptions::default() };
    assert!(curves(&[run("long", 300, 0.8)], &options).svg().contains("last 100 epochs"));
    assert!(!curves(&[run("short", 100, 0.8)], &options).svg().contains("last 100 epochs"));
}

#[test]
fn an_inset_can_leave_a_style_out() {
    let dashed_lines = |only: Option<Style>| {
        let mut picture =
            curves(&[run("a", 300, 0.8)], &CurveOptions { zoom_last: Some(100), ..CurveOptions::default() });
        for panel in &mut picture.panels {
            if let Panel::Lines(Figure { inset: Some(inset), .. }) = panel {
                inset.only = only;
            }
        }
        picture.svg().matches("stroke-dasharray").count()
    };
    assert_eq!(dashed_lines(None), dashed_lines(Some(Style::Solid)) + 1);
    assert_eq!(dashed_lines(None), dashed_lines(Some(Style::ThinDashed)));
}

#[test]
fn the_same_picture_is_the_same_bytes() {
    let picture = curves(&[run("a", 300, 0.8)], &CurveOptions { losses: true, ..CurveOptions::default() });
    assert_eq!(picture.svg(), picture.svg());
    assert_eq!(picture.png().unwrap(), picture.png().unwrap());
}

#[test]
fn regions_are_coloured_from_below() {
    let regions = Regions {
        x_range: (0.0, 1.0),
        y_range: (0.0, 1.0),
        columns: 2,
        cells: vec![0, 0, 1, 1],
        points: vec![(0.5, 0.25, 1), (f64::NAN, 0.5, 1), (7.0, 7.0, 1)],
        ..Regions::default()
    };
    let panel_size = (300.0, 300.0);
    let picture =
        Picture { title: String::new(), panels: vec![Panel::Regions(regions)], columns: 1, panel_size, legend: true };
    let png = picture.png().unwrap();
    let tint = |class| {
        let tint = group_colour(class).mix(Colour::WHITE, 0.68);
        [tint.0, tint.1, tint.2]
    };
    assert_eq!(pixel(&png, 0.3, 0.2), tint(1));
    assert_eq!(pixel(&png, 0.3, 0.8), tint(0));
    assert_eq!(picture.svg().matches("<circle").count(), 1);
}

#[test]
fn odd_data_is_drawn_without_complaint() {
    let odd: [Vec<(f64, f64)>; 7] = [
        vec![],
        vec![(1.0, 1.0)],
        vec![(1.0, f64::NAN)],
        vec![(1.0, 0.0), (2.0, f64::NAN), (3.0, 1.0), (4.0, 2.0)],
        vec![(0.0, f64::INFINITY), (1.0, f64::NEG_INFINITY)],
        vec![(0.0, f64::MAX), (1.0, f64::MIN), (2.0, 1e30), (3.0, -1e30)],
        vec![(2.0, 5.0), (2.0, 5.0)],
    ];
    for points in odd {
        for only in [None, Some(None), Some(Some(Style::Solid)), Some(Some(Style::ThinDashed))] {
            let inset = only.map(|only| Inset { x_range: (1.0, 2.0), y_range: None, only, label: String::new() });
            let series = vec![Series { name: "odd".into(), group: 40, style: Style::Solid, points: points.clone() }];
            let picture = Picture::of(Figure { series, inset, ..Figure::default() });
            let svg = picture.svg();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{points:?}\n{svg}");
            picture.png().unwrap();
        }
    }
    for (panels, columns) in [(vec![], 0), (vec![Panel::Regions(Regions::default())], 9)] {
        let panel_size = (f64::NAN, -3.0);
        let picture = Picture { title: "x".repeat(500), panels, columns, panel_size, legend: true };
        assert!(!picture.svg().contains("NaN"));
        picture.png().unwrap();
    }
}

#[test]
fn a_picture_is_saved_in_both_formats() {
    let folder = std::env::temp_dir().join(format!("ftprop-plot-{}", std::process::id()));
    files::create_folder(&folder).unwrap();
    let picture = curves(&[run("a", 3, 0.8)], &CurveOptions::default());
    picture.save(&folder.join("convnet4.v2")).unwrap();
    picture.save(&folder.join("curves.svg")).unwrap();
    let saved: Vec<_> = ["convnet4.v2.svg", "curves.svg", "convnet4.v2.png", "curves.png"]
        .map(|name| files::read(&folder.join(name)).unwrap_or_default())
        .into();
    std::fs::remove_dir_all(&folder).unwrap();
    let (svg, png) = (picture.svg().into_bytes(), picture.png().unwrap());
    assert!(saved == [svg.clone(), svg, png.clone(), png]);
}

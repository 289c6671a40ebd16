//! Draws what the example `growth` measured: CSV in, SVG out.
//!
//!     cargo run --release -p ftprop-search --example draw_growth < growth.csv > growth.svg

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::Read;

const COLOURS: [&str; 9] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f5539", "#000000", "#999999"];
const LEFT: f64 = 80.0;
const TOP: f64 = 50.0;
const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 360.0;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let mut lines: BTreeMap<(usize, usize), Vec<(f64, f64)>> = BTreeMap::new();
    for row in text.lines().skip(1) {
        let cells: Vec<&str> = row.split(',').collect();
        let [instances, inputs, hidden, _, _, _, seconds] = cells.as_slice() else {
            return Err(format!("not a line of growth: {row}").into());
        };
        let point = (instances.parse::<f64>()?, seconds.parse::<f64>()?.max(1e-4));
        lines.entry((inputs.parse()?, hidden.parse()?)).or_default().push(point);
    }
    print!("{}", draw(&lines)?);
    Ok(())
}

/// Both axes are logarithmic: a straight line is a power of the number of instances.
fn draw(lines: &BTreeMap<(usize, usize), Vec<(f64, f64)>>) -> Result<String, std::fmt::Error> {
    let x = |instances: f64| LEFT + WIDTH * (instances / 8.0).ln() / (200.0f64 / 8.0).ln();
    let y = |seconds: f64| TOP + HEIGHT * (1.0 - (seconds / 1e-4).ln() / 1e6f64.ln());
    let mut svg = String::new();
    let (full_width, full_height) = (LEFT + WIDTH + 200.0, TOP + HEIGHT + 60.0);
    writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{full_width}\" height=\"{full_height}\" \
         font-family=\"sans-serif\" font-size=\"13\">"
    )?;
    writeln!(svg, "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>")?;
    writeln!(svg, "<text x=\"{LEFT}\" y=\"28\" font-size=\"16\">Time to prove the optimal zero-one loss</text>")?;
    for instances in [8, 10, 20, 30, 50, 100, 200] {
        let (at, bottom) = (x(f64::from(instances)), TOP + HEIGHT);
        writeln!(svg, "<line x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{bottom}\" stroke=\"#dddddd\"/>")?;
        writeln!(svg, "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{instances}</text>", bottom + 18.0)?;
    }
    for (seconds, label) in [
        (1e-4, "0.1 ms"),
        (1e-3, "1 ms"),
        (1e-2, "10 ms"),
        (0.1, "0.1 s"),
        (1.0, "1 s"),
        (10.0, "10 s"),
        (100.0, "100 s"),
    ] {
        let (at, right) = (y(seconds), LEFT + WIDTH);
        writeln!(svg, "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\" stroke=\"#dddddd\"/>")?;
        writeln!(svg, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>", LEFT - 8.0, at + 4.0)?;
    }
    let middle = LEFT + WIDTH / 2.0;
    writeln!(svg, "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">instances</text>", TOP + HEIGHT + 42.0)?;
    for (number, ((inputs, hidden), points)) in lines.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let path: Vec<String> = points.iter().map(|&(m, s)| format!("{:.1},{:.1}", x(m), y(s))).collect();
        writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            path.join(" ")
        )?;
        let (at, from) = (TOP + 16.0 + 22.0 * number as f64, LEFT + WIDTH + 16.0);
        writeln!(
            svg,
            "<line x1=\"{from}\" y1=\"{0}\" x2=\"{1}\" y2=\"{0}\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            at - 4.0,
            from + 24.0
        )?;
        writeln!(svg, "<text x=\"{}\" y=\"{at}\">{inputs} inputs, {hidden} hidden</text>", from + 32.0)?;
    }
    writeln!(svg, "</svg>")?;
    Ok(svg)
}

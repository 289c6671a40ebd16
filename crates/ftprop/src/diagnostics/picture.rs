//! The figures of all hard layers over time, in one picture.

use super::Record;
use crate::plot::{Figure, Panel, Picture, Series, Style};
use ftprop_nn::LayerDiagnosis;

/// A figure of a layer; a line is interrupted where it has none.
type Value = fn(&LayerDiagnosis) -> Option<f64>;

/// What one panel shows: a title, a label, a solid line for each layer, and perhaps a dashed one.
struct Content {
    title: &'static str,
    y_label: &'static str,
    solid: Value,
    dashed: Option<Value>,
    /// Whether its axis begins at zero.
    from_zero: bool,
}

const PANELS: [Content; 6] = [
    Content {
        title: "out of the saturated hinge's reach (dashed: hardly pushed)",
        y_label: "units (%)",
        solid: |l| percent(Some(l.beyond)),
        dashed: Some(|l| percent(l.faint)),
        from_zero: true,
    },
    Content {
        title: "target and activation disagree (dashed: no target)",
        y_label: "steps (%)",
        solid: |l| percent(l.disagree),
        dashed: Some(|l| percent(Some(l.untargeted))),
        from_zero: true,
    },
    Content {
        title: "flips that came true (dashed: targets lost)",
        y_label: "share (log10)",
        solid: |l| l.came_true.and_then(magnitude),
        dashed: Some(|l| l.lost.and_then(magnitude)),
        from_zero: false,
    },
    Content {
        title: "gradient passed on, of that which arrived",
        y_label: "norm (%)",
        solid: |l| percent((l.gradient > 0.0).then(|| l.slope / l.gradient)),
        dashed: None,
        from_zero: true,
    },
    Content {
        title: "gradient that arrives at the layer",
        y_label: "norm (log10)",
        solid: |l| magnitude(l.gradient),
        dashed: None,
        from_zero: false,
    },
    Content {
        title: "gradient of the layer's weights",
        y_label: "norm (log10)",
        solid: |l| magnitude(l.weight_gradient),
        dashed: None,
        from_zero: false,
    },
];

fn percent(share: Option<f64>) -> Option<f64> {
    share.map(|share| 100.0 * share)
}

/// Norms and flips differ by powers of ten, from layer to layer and over time.
fn magnitude(value: f64) -> Option<f64> {
    (value > 0.0).then(|| value.log10())
}

/// Every hard layer has a colour of its own.
pub fn picture(records: &[Record], title: &str) -> Picture {
    let layers = records.first().map_or(&[][..], |r| &r.diagnosis.layers);
    let panel = |content: &Content| {
        let mut series = Vec::new();
        for (group, layer) in layers.iter().enumerate() {
            let points = |value: Value| -> Vec<(f64, f64)> {
                let of = |r: &Record| value(r.diagnosis.layers.get(group)?);
                records.iter().map(|r| (f64::from(r.epoch), of(r).unwrap_or(f64::NAN))).collect()
            };
            if let Some(dashed) = content.dashed {
                series.push(Series { name: String::new(), group, style: Style::ThinDashed, points: points(dashed) });
            }
            let name = format!("{}: {}", layer.layer, layer.below);
            series.push(Series { name, group, style: Style::Solid, points: points(content.solid) });
        }
        let values = series.iter().flat_map(|s| &s.points).map(|point| point.1);
        let highest = values.fold(1.0, f64::max);
        Panel::Lines(Figure {
            title: content.title.into(),
            x_label: "epochs done".into(),
            y_label: content.y_label.into(),
            y_range: content.from_zero.then_some((-0.02 * highest, 1.05 * highest)),
            series,
            ..Figure::default()
        })
    };
    let panels = PANELS.iter().map(panel).collect();
    Picture { title: title.to_string(), panels, columns: 2, panel_size: (520.0, 270.0), legend: true }
}

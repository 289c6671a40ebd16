//! The figures of hard layers over time: one run's in one picture, or those of several runs compared.

use crate::plot::{Figure, Panel, Picture, Series, Style};
use ftprop_nn::LayerDiagnosis;
use ftprop_train::diagnostics::Record;

/// A figure of a layer; a line is interrupted where it has none.
type Value = fn(&LayerDiagnosis) -> Option<f64>;

/// What one panel shows: a solid and a dashed line for each layer, or for each run.
struct Content {
    title: &'static str,
    /// The title beside a layer's name, for panels that are worth comparing.
    short: Option<&'static str>,
    y_label: &'static str,
    solid: Value,
    dashed: Value,
    /// Whether its axis begins at zero.
    from_zero: bool,
}

const PANELS: [Content; 6] = [
    Content {
        title: "out of the saturated hinge's reach (dashed: hardly pushed)",
        short: Some("out of reach"),
        y_label: "units (%)",
        solid: |l| percent(Some(l.beyond)),
        dashed: |l| percent(l.faint),
        from_zero: true,
    },
    Content {
        title: "targets that disagree (dashed: by weight)",
        short: Some("disagree"),
        y_label: "steps (%)",
        solid: |l| percent(l.disagree),
        dashed: |l| percent(l.disagree_by_weight),
        from_zero: true,
    },
    Content {
        title: "flips that came true (dashed: targets lost)",
        short: None,
        y_label: "steps (log10)",
        solid: |l| l.came_true.and_then(magnitude),
        dashed: |l| l.lost.and_then(magnitude),
        from_zero: false,
    },
    Content {
        title: "flips that came true, by weight (dashed: targets lost)",
        short: Some("came true, by weight"),
        y_label: "weight (log10)",
        solid: |l| l.came_true_by_weight.and_then(magnitude),
        dashed: |l| l.lost_by_weight.and_then(magnitude),
        from_zero: false,
    },
    Content {
        title: "gradient passed on (dashed: units without a target)",
        short: None,
        y_label: "norm, units (%)",
        solid: |l| percent((l.gradient > 0.0).then(|| l.slope / l.gradient)),
        dashed: |l| percent(Some(l.untargeted)),
        from_zero: true,
    },
    Content {
        title: "gradient that arrives (dashed: that of the weights)",
        short: Some("gradient"),
        y_label: "norm (log10)",
        solid: |l| magnitude(l.gradient),
        dashed: |l| magnitude(l.weight_gradient),
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

impl Content {
    /// The panel of some layers' records, each with a name and a colour.
    fn panel(&self, title: String, lines: &[Line<'_>]) -> Panel {
        let mut series = Vec::new();
        for (group, line) in lines.iter().enumerate() {
            let mut add = |name: &str, style: Style, value: Value| {
                let point =
                    |&(epoch, layer): &(u32, &LayerDiagnosis)| (f64::from(epoch), value(layer).unwrap_or(f64::NAN));
                let points = line.points.iter().map(point).collect();
                series.push(Series { name: name.to_string(), group, style, points });
            };
            add("", Style::ThinDashed, self.dashed);
            add(&line.name, Style::Solid, self.solid);
        }
        let values = series.iter().flat_map(|s| &s.points).map(|point| point.1);
        let highest = values.fold(1.0, f64::max);
        Panel::Lines(Figure {
            title,
            x_label: "epochs done".into(),
            y_label: self.y_label.into(),
            y_range: self.from_zero.then_some((-0.02 * highest, 1.05 * highest)),
            series,
            ..Figure::default()
        })
    }
}

/// A layer of a run, epoch by epoch.
struct Line<'a> {
    name: String,
    points: Vec<(u32, &'a LayerDiagnosis)>,
}

impl<'a> Line<'a> {
    fn new(name: String, records: &'a [Record], path: &str) -> Self {
        let of = |r: &'a Record| Some((r.epoch, r.diagnosis.layers.iter().find(|l| l.layer == path)?));
        Line { name, points: records.iter().filter_map(of).collect() }
    }
}

fn layers(records: &[Record]) -> &[LayerDiagnosis] {
    records.first().map_or(&[], |r| &r.diagnosis.layers)
}

fn name(layer: &LayerDiagnosis) -> String {
    format!("{}: {}", layer.layer, layer.below)
}

/// One run: a panel for each figure, where every hard layer has a colour of its own.
pub fn picture(records: &[Record], title: &str) -> Picture {
    let lines: Vec<_> = layers(records).iter().map(|l| Line::new(name(l), records, &l.layer)).collect();
    let panels = PANELS.iter().map(|content| content.panel(content.title.to_string(), &lines)).collect();
    Picture { title: title.to_string(), panels, columns: 2, panel_size: (520.0, 270.0), legend: true }
}

/// Several runs: a row for each hard layer of the first, where every run has a colour of its own.
pub fn comparison(runs: &[(String, Vec<Record>)], title: &str) -> Picture {
    let mut panels = Vec::new();
    for layer in runs.first().map_or(&[][..], |(_, records)| layers(records)) {
        let lines: Vec<_> = runs.iter().map(|(run, records)| Line::new(run.clone(), records, &layer.layer)).collect();
        for (content, short) in PANELS.iter().filter_map(|content| Some((content, content.short?))) {
            panels.push(content.panel(format!("{}, {short}", name(layer)), &lines));
        }
    }
    let dashed = "dashed, from left to right: hardly pushed; disagree by weight; targets lost; gradient of the weights";
    let title = if title.is_empty() { dashed.to_string() } else { format!("{title} ({dashed})") };
    Picture { title, panels, columns: 4, panel_size: (400.0, 240.0), legend: true }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftprop_nn::Diagnosis;

    fn records() -> Vec<Record> {
        let layer = |layer: &str, below: &str| LayerDiagnosis {
            layer: layer.into(),
            below: below.into(),
            beyond: 0.5,
            faint: Some(0.25),
            disagree: Some(0.5),
            disagree_by_weight: Some(0.25),
            came_true: Some(0.01),
            lost: Some(0.001),
            came_true_by_weight: Some(0.01),
            lost_by_weight: Some(0.001),
            gradient: 1.0,
            slope: 0.5,
            weight_gradient: 0.25,
            units: 24,
            untargeted: 0.0,
        };
        let layers = vec![layer("1", "fc 24"), layer("3", "fc 12")];
        let record = |epoch: u32| Record {
            epoch,
            step: u64::from(epoch) * 13,
            diagnosis: Diagnosis { loss: 1.0, loss_after: 0.5, layers: layers.clone() },
        };
        (0..3).map(record).collect()
    }

    #[test]
    fn layers_have_a_line_in_every_panel() {
        let svg = picture(&records(), "two layers").svg();
        assert_eq!(svg.matches(">1: fc 24</text>").count(), 1);
        // Each of the six panels has a dashed line for each layer; the legend has none.
        assert_eq!(svg.matches("stroke-dasharray").count(), 12);

        let runs = ["one", "other"].map(|name| (name.to_string(), records()));
        let svg = comparison(&runs, "").svg();
        // A row of four panels for each of the two layers, with a dashed line for each run.
        assert_eq!(svg.matches(">3: fc 12, disagree</text>").count(), 1);
        assert_eq!(svg.matches("stroke-dasharray").count(), 16);
        assert!(svg.contains(">one</text>") && svg.contains(">other</text>"));
    }
}

//! Figures that change with time as a picture: a line for each server, from 0 to 1, and when something happened.

use std::fmt::Write as _;

use super::charts::{WIDTH, class, escape, head};
use super::contenders::Contenders;
use super::write::{Course, Table};

const LEFT: usize = 48;
const RIGHT: usize = 16;
const TOP: usize = 72;
const PLOT_HEIGHT: usize = 220;
const BOTTOM: usize = 32;
/// Labels along the axis of figures.
const STEPS: usize = 5;

/// The picture of a table's course, as SVG.
pub(super) fn lines(table: &Table, course: &Course, contenders: &Contenders) -> String {
    let end = course.lines.iter().flat_map(|(_, points)| points).map(|point| point[0]).fold(1.0_f64, f64::max).ceil();
    let x = |seconds: f64| LEFT as f64 + seconds / end * (WIDTH - LEFT - RIGHT) as f64;
    let y = |figure: f64| TOP as f64 + (1.0 - figure.clamp(0.0, 1.0)) * PLOT_HEIGHT as f64;
    let mut svg = head(table, contenders, TOP + PLOT_HEIGHT + BOTTOM);
    let label = |svg: &mut String, x: f64, y: f64, anchor: &str, text: &str| {
        let text = escape(text);
        let _ = writeln!(
            svg,
            "<text class=\"figure\" x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"11\" text-anchor=\"{anchor}\">{text}</text>"
        );
    };
    for step in 0..=STEPS {
        let figure = step as f64 / STEPS as f64;
        label(&mut svg, LEFT as f64 - 8.0, y(figure) + 4.0, "end", &format!("{figure:.1}"));
        let _ = writeln!(
            svg,
            "<rect class=\"figure\" x=\"{LEFT}\" y=\"{:.1}\" width=\"{}\" height=\"0.3\"/>",
            y(figure),
            WIDTH - LEFT - RIGHT
        );
    }
    for second in 0..=end as u32 {
        let seconds = f64::from(second);
        label(&mut svg, x(seconds), (TOP + PLOT_HEIGHT + 18) as f64, "middle", &format!("{second} s"));
    }
    for &(seconds, what) in &course.marks {
        let _ = writeln!(
            svg,
            "<rect class=\"text\" x=\"{:.1}\" y=\"{TOP}\" width=\"1\" height=\"{PLOT_HEIGHT}\"/>",
            x(seconds)
        );
        label(&mut svg, x(seconds) + 4.0, (TOP + PLOT_HEIGHT - 6) as f64, "start", what);
    }
    for (who, points) in &course.lines {
        let points: Vec<String> = points.iter().map(|point| format!("{:.1},{:.1}", x(point[0]), y(point[1]))).collect();
        let _ = writeln!(svg, "<polyline class=\"{}\" points=\"{}\"/>", class(*who), points.join(" "));
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::super::Settings;
    use super::super::contenders::Who;
    use super::*;

    #[test]
    fn a_line_goes_from_the_bottom_at_0_to_the_top_at_1() {
        let settings = Settings { memcached: "true".to_owned(), ..crate::flags::tests::defaults() };
        let contenders = Contenders::find(&settings).unwrap();
        let table = Table::new("A & B", "", vec![Who::Router, Who::Tier]);
        let course = Course {
            lines: vec![(Who::Router, vec![[0.0, 0.0], [10.0, 1.0]]), (Who::Tier, vec![[5.0, 0.5]])],
            marks: vec![(5.0, "killed")],
        };
        let svg = lines(&table, &course, &contenders);
        assert!(svg.contains("class=\"router\" points=\"48.0,292.0 844.0,72.0\""), "{svg}");
        assert!(svg.contains("class=\"tier\" points=\"446.0,182.0\"") && svg.contains(">killed<"), "{svg}");
        assert!(svg.contains("A &amp; B") && svg.ends_with("</svg>\n"));
        assert!(!svg.split_once("</style>").unwrap().1.contains("fill="), "colours stand in the style alone");
    }
}
